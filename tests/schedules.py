"""The simulator's schedule, played through the deployed runtime: who answers when, who is lost, who wakes."""

import time
from typing import NamedTuple

import numpy as np
import torch
from federations import under_way

from potluck.core.messages import Lost, Move, Node, Reply, Spent, Wake
from potluck.data import Pool
from potluck.deploy.conduct import replay
from potluck.deploy.conduct.events import Answered, Begun, Came, Dropped, Looked, Woke
from potluck.deploy.conduct.server import Server
from potluck.deploy.conduct.terms import Rows, Terms
from potluck.deploy.parcels import BODY
from potluck.deploy.port import MemoryPort
from potluck.deploy.work import vocabulary
from potluck.deploy.work.device import Device, Holding, OwnRows
from potluck.engine.offers import find_offers
from potluck.engine.point import LOOK
from potluck.engine.schedule import StopAt
from potluck.fleet import COLUMNS
from potluck.rules import as_algorithm
from potluck.simulate import Simulation


class Moment(NamedTuple):
    """Something that happened in a simulation."""

    at: float
    flight: int | None  # an item that ended; else somebody was woken
    event: object


def record(federation, algorithm, *, rounds, seed=0):
    """A simulation that has run to its end, and what happened in it."""
    sim = Simulation(federation, algorithm, seed=seed, stop=StopAt(rounds=rounds))
    script, end, hear, end_together = [], sim.devices.end, sim._hear, sim.devices.flocks.end

    def end_and_note(fid):
        there = fid in {flight.id for flight in under_way(sim)}
        heard = end(fid)
        if there:
            script.append(Moment(sim.now, fid, None if heard is None else heard[1]))
        return heard

    def end_together_and_note(flock, *given):
        replies = end_together(flock, *given)
        rows = [] if replies is None else replies.places.tolist()
        script.extend(
            Moment(float(flock.ends[row]), flock.id + row, e)
            for row, e in zip(rows, replies or (), strict=True)
        )
        return replies

    def hear_and_note(node, event):
        if isinstance(event, Wake):
            script.append(Moment(sim.now, None, event))
        hear(node, event)

    sim.devices.end, sim._hear = end_and_note, hear_and_note
    sim.devices.flocks.end = end_together_and_note
    sim.run()
    return sim, script


def cut(pool: Pool, parts: dict[str, np.ndarray]) -> Holding:
    """Some rows of a pool, as a device has them: nobody else's, numbered from 0."""
    rows = np.concatenate(list(parts.values()))
    firsts = np.cumsum([0, *(len(part) for part in parts.values())])
    places = {name: np.arange(firsts[i], firsts[i + 1]) for i, name in enumerate(parts)}
    mine = torch.tensor(rows)
    return Holding(OwnRows(pool.x[mine], pool.y[mine]), places, pool.classes)


class Stage:
    """A server and its devices, each with a folder; everything but the folders can be thrown away."""

    def __init__(
        self,
        federation,
        algorithm,
        folder,
        *,
        rounds,
        seed=0,
        claims=None,
        allow=None,
        real=False,
        limits=BODY,
    ):
        self.federation, self.folder, self.claims = federation, folder, claims
        self.allow = vocabulary.learn() if allow is None else allow
        self.now, self.real = 0.0, real  # real: by the machine's clock
        pool = federation.pool
        self.terms = Terms(
            as_algorithm(algorithm),
            federation.models,
            Rows(pool.shape, pool.classes, pool.x.dtype),
            len(federation.fleet),
            seed,
            StopAt(rounds=rounds),
            user=federation.fleet.user,
            limits=limits,
            server={"train": federation.server},
        )
        self.build()

    def build(self):
        """New objects from the folders alone."""
        f, n = self.federation, self.terms.devices
        self.devices = {i: self.make_device(i, {p: f.partition.rows(i, p) for p in PARTS}) for i in range(n)}
        self.devices[n] = self.make_device(n, {"train": f.server_rows()})
        self.port = MemoryPort({i: device.answer for i, device in self.devices.items()})
        home = self.folder / "server"
        home.mkdir(exist_ok=True, parents=True)
        clock = time.time if self.real else lambda: self.now
        self.said = []
        self.server = Server(
            self.terms,
            self.port,
            home,
            identity="x",
            run="r",
            start_with=n,
            clock=clock,
            snapshot_every=1e9,
            say=self.said.append,
        )
        return self

    def make_device(self, node: Node, parts):
        folder = self.folder / f"device{node}"
        folder.mkdir(exist_ok=True, parents=True)
        return Device(folder, cut(self.federation.pool, parts), self.federation.models, self.allow)

    def begin(self):
        for node in range(self.terms.devices):
            told = self.devices[node].present()
            claims = {} if self.claims is None else {c: float(getattr(self.claims, c)[node]) for c in COLUMNS}
            self.server.take(Came(node, told.rows, told.labels, claims))
        if self.claims is not None:
            self.server.conductor.claimed = self.claims
        self.server.take(Begun(0.0))
        self.server.post()

    def recover(self):
        """All processes have ended and start again."""
        self.server.close()
        self.build()
        if self.claims is not None:
            self.server.conductor.claimed = self.claims
        for node in self.devices:
            self.server.post_again(node)
        self.server.post()

    def play(self, moment: Moment, *, answer=True):
        """One moment of a schedule."""
        self.now, server = moment.at, self.server
        event = moment.event
        if moment.flight is None:
            assert isinstance(event, Wake)
            if event.tag == LOOK:
                server.take(Looked())
            else:
                server.take(Woke(event.tag))
        else:
            flight = server.conductor.queues.flights[moment.flight]
            assert not isinstance(flight.item, Move)
            if isinstance(event, Lost) and event.why != "bad":
                server.take(Dropped(moment.flight, event.why))
            else:
                key = server.conductor.make_key(flight)
                parcel = next(p for p in reversed(self.port.waiting) if p.key == key)
                (heard,) = self.port.carry(parcel)
                spent = event.spent if isinstance(event, Reply) else SPENT
                server.take(Answered(moment.flight, spent, 0, 0), heard.parcel)
                assert self.port.carry(parcel) == [heard]  # from disk
                server.take_report(heard)  # nobody waits for it any more
        server.post()
        wanted = {server.conductor.make_key(f) for f in server.conductor.queues.flights.values()}
        self.port.waiting = [p for p in self.port.waiting if p.key in wanted]

    def compute_ahead(self):
        """Every device does at once what it was asked for, as real ones do, wanted later or not."""
        for parcel in self.port.waiting:
            self.port.carry(parcel)


PARTS = ("train", "validation", "test")
SPENT = Spent()


def find_difference(sim: Simulation, server: Server, spent: bool = True) -> str | None:
    """Where a deployed run parts from the simulation; None if they are the same to the bit."""
    own, theirs = server.conductor.point.own, sim.cloud.own
    for name in ("tick", "round"):
        if getattr(own, name) != getattr(theirs, name):
            return f"{name}: {getattr(own, name)}, not {getattr(theirs, name)}"
    if server.state.accounts.lost != sim.accounts.lost or server.state.accounts.tasks != sim.accounts.tasks:
        return f"{server.state.accounts}, not {sim.accounts}"
    if spent:
        return replay.find_difference(own.state, theirs.state)
    both = ((server.conductor, server.conductor.point), (sim, sim.cloud))  # times on another clock differ
    served = [dict(find_offers(host, {host.root: point}, host.root, 0)) for host, point in both]
    return replay.find_difference(*served)


def find_difference_between(one: Server, other: Server) -> str | None:
    """Where two deployed runs part: what they serve, to the bit, and what became of tasks."""
    for name in ("lost", "tasks"):
        if getattr(one.state.accounts, name) != getattr(other.state.accounts, name):
            return f"{one.state.accounts}, not {other.state.accounts}"
    hosts = (one.conductor, other.conductor)
    served = [dict(find_offers(host, {host.root: host.point}, host.root, 0)) for host in hosts]
    return replay.find_difference(*served)


class ToldPort(MemoryPort):
    """Devices that answer as a script says: by key, what is made of the report."""

    def __init__(self, devices, root, script):
        super().__init__({n: device.answer for n, device in devices.items()})
        self.root, self.script = root, script
        self.keys = []  # of work, as it was carried

    def nodes(self):
        return {node: session for node, session in self.sessions.items() if node != self.root}

    def carry(self, parcel):
        heard = super().carry(parcel)
        if heard and not parcel.key.startswith("hello") and "/e" not in parcel.key:
            self.keys.append((parcel.to, parcel.key))
            heard = [one._replace(parcel=self.script(one)) for one in heard]
        return [one for one in heard if one.parcel]


def run_by_script(stage, script=lambda heard: heard.parcel, *, until=2000):
    """A run in this process whose devices answer as a script says; a second a step."""
    stage.port = stage.server.poster.port = ToldPort(stage.devices, stage.terms.devices, script)
    for _ in range(until):
        stage.server.step()
        stage.now += 1.0
        if stage.server.state.finished:
            return stage
    raise AssertionError("no end")

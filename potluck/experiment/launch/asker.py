"""Runs computed elsewhere, from the side of who asked: their folders are written as their machines tell.

The asker is the only one that writes here, and all that is known of a run is what its folder holds. So a run
whose machine has gone is asked for again with that, and if the asker goes, the same command goes on with it.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from potluck.core.errors import PotluckError
from potluck.data import Pool
from potluck.engine.schedule import Progress
from potluck.experiment.launch import execution_plan, far_run
from potluck.experiment.launch.asked_run import AskedRun
from potluck.experiment.launch.folder_changes import Changes, read_all
from potluck.experiment.launch.follower import Done, Follower, Missing
from potluck.experiment.launch.words import (
    Begun,
    Broken,
    Chosen,
    Failed,
    Here,
    LostError,
    Order,
    UserCode,
    Word,
    list_versions,
)
from potluck.experiment.prepare import resolve_run
from potluck.experiment.run_events import Ended, Started

BLAMED = 3  # attempts in a row without a newer snapshot, after which it is the run's own fault
TICK = 1.0  # seconds in which nothing need be heard
WAITED, SELDOM = 10.0, 60.0  # seconds until it is said that runs wait for machines, and between two times

S = TypeVar("S")
T = TypeVar("T")


class Machines(Protocol[S]):
    """What is needed of those that compute: to take orders, and to be heard."""

    def begin(self, name: str, call: Callable[[T, Pool | None], Iterator[Word]], terms: T) -> S: ...
    def wait(self, streams: Sequence[S], seconds: float) -> Sequence[S]: ...  # those that can be heard
    def hear(self, stream: S) -> Word: ...  # LostError if it is broken
    def drop(self, stream: S) -> None: ...  # at once
    def tell_lack(self, runs: int) -> str: ...  # what so many runs wait for, and what there is


class Terms(NamedTuple):
    """What every run is given."""

    cpus: int
    gpus: float
    user: UserCode
    jobs: int = 0  # at a time; 0: as many as there is room for


class Asker(Generic[S]):
    """Asks machines for runs, and writes down what they tell."""

    def __init__(self, machines: Machines[S], terms: Terms, follower: Follower) -> None:
        self.machines, self.terms, self.follower = machines, terms, follower
        self.streams: dict[S, AskedRun] = {}
        self.asked: list[AskedRun] = []  # all of them, also those that wait
        self.quiet_since = time.monotonic()  # nobody has computed anything for us
        self.said = -SELDOM  # that runs wait

    def compute(self, missing: Sequence[Missing]) -> None:
        """All of them, into their folders; what is wrong with one stops the rest."""
        asked = self.asked = [AskedRun(run) for run in missing]
        try:
            for each in asked:
                each.hold()
            with self.follower.showing():
                self._choose([each for each in asked if not each.made and _is_open(each.run)])
                waiting = asked[::-1]
                while waiting or self.streams:
                    while waiting and len(self.streams) < (self.terms.jobs or len(asked)):
                        self._ask(waiting.pop())
                    for stream in self._wait(self.streams, self.streams.values()):
                        self._hear(stream)
        finally:
            for stream in self.streams:
                self.machines.drop(stream)
            for each in asked:
                each.let_go()

    def _ask(self, asked: AskedRun) -> None:
        asked.attempt, asked.host, asked.gained = asked.attempt + 1, "", False
        there = read_all(asked.place) if asked.made else None
        order = self._order(asked, there)
        self.streams[self.machines.begin(asked.run.name, far_run.compute_far, order)] = asked

    def _order(self, asked: AskedRun, there: Changes | None) -> Order:
        run, terms = asked.run, self.terms
        full = resolve_run(run.experiment)
        return Order(
            run.name,
            full.to_toml(),
            full.source,
            there,
            asked.choice,
            terms.user,
            terms.cpus,
            max(1, round(1 / terms.gpus)) if terms.gpus else 1,
            self.follower.wants_events,
        )

    def _wait(self, streams: Iterable[S], asked: Iterable[AskedRun]) -> Sequence[S]:
        """Those that can be heard; meanwhile all runs give a sign of life, and it is said now and then that
        nothing gets on for want of machines."""
        for each in self.asked:
            each.look()
        ready, now, hosts = self.machines.wait(list(streams), TICK), time.monotonic(), [a.host for a in asked]
        if ready or any(hosts):
            self.quiet_since = now
        elif now - self.quiet_since >= WAITED and now - self.said >= SELDOM:
            self.said = now
            self.follower.say(self.machines.tell_lack(len(hosts)))
        return ready

    def _hear(self, stream: S) -> None:
        asked, follower = self.streams.pop(stream), self.follower
        self.streams[stream] = asked  # behind the others: all are heard in turn
        run = asked.run
        try:
            word = self.machines.hear(stream)
        except LostError as error:
            word = Broken(error.how, str(error))
        if isinstance(word, Broken):
            del self.streams[stream]
            self._ask_again(asked, word)
        elif isinstance(word, Here):
            self._meet(asked, word)
        elif isinstance(word, Begun):
            self._tell_begin(asked, word)
        elif isinstance(word, Changes):
            asked.write(word)
        elif isinstance(word, Progress):
            follower.progress(run, word)
        elif isinstance(word, Failed):
            asked.remove_if_vain()
            raise word.failure.as_error(f"{run.name} on {asked.host}")
        elif isinstance(word, Done):
            del self.streams[stream]
            asked.let_go()
            follower.end(run, word)
        elif isinstance(word, Started | Ended):
            follower.event(dataclasses.replace(word, folder=asked.place))
        elif not isinstance(word, Chosen):
            follower.event(word)

    def _meet(self, asked: AskedRun, here: Here) -> None:
        """A machine has taken the order: it must be like this one, and should be like the last one."""
        _check_versions(here)
        run, before = asked.run, asked.kind
        if not before and asked.made:  # begun by an earlier command
            before = execution_plan.read_origin(asked.place).partition(" of ")[2].partition(", torch ")[0]
        if not asked.started:  # an attempt may break off before this
            asked.started = True
            self.follower.start(run, here.host)
        if before and not here.kind.startswith(before):
            self.follower.say(
                f"{run.name}: goes on on another kind of machine ({here.kind}; before: {before}), so last "
                "digits may differ"
            )
        asked.host, asked.kind = here.host, here.kind

    def _tell_begin(self, asked: AskedRun, begun: Begun) -> None:
        asked.round = begun.round
        at = f"from round {begun.round}" if begun.resumed else "from the start"
        if asked.attempt > 1:
            self.follower.say(
                f"{asked.run.name}: {asked.why}; on {asked.host}, attempt {asked.attempt}, {at}"
            )
        elif begun.resumed:
            self.follower.say(f"{asked.run.name}: goes on {at}")

    def _ask_again(self, asked: AskedRun, broken: Broken) -> None:
        """With what has arrived, as long as the run gets on."""
        asked.vain, asked.why = 0 if asked.gained else asked.vain + 1, broken.text
        if asked.vain >= BLAMED:
            raise PotluckError(
                f"{asked.run.name}: broken off {BLAMED} times at round {asked.round}, last by {broken.how} "
                f"on {asked.host or 'a machine that never answered'}; give it more with ?cpus="
            )
        self._ask(asked)

    def _choose(self, asked: Sequence[AskedRun]) -> None:
        """Let one machine measure how these are computed, where that is open."""
        if not asked:
            return
        orders = [self._order(each, None) for each in asked]
        measuring, last = AskedRun(asked[0].run), ""
        for _ in range(BLAMED):
            stream = self.machines.begin("plans", far_run.choose_far, orders)
            try:
                found = self._hear_choices(stream, measuring)
            finally:
                self.machines.drop(stream)
            if isinstance(found, Chosen):
                for each, choice in zip(asked, found.choices, strict=True):
                    each.choice = choice
                return
            last = found.how
        raise PotluckError(
            f"plans: broken off {BLAMED} times, last by {last} on {measuring.host}; "
            "give it more with ?cpus=, or say how runs are computed with run.executor"
        )

    def _hear_choices(self, stream: S, measuring: AskedRun) -> Chosen | Broken:
        measuring.host = ""
        while True:
            if not self._wait([stream], [measuring]):
                continue
            try:
                word = self.machines.hear(stream)
            except LostError as error:
                return Broken(error.how, str(error))
            if isinstance(word, Here):
                _check_versions(word)
                measuring.host = word.host
            elif isinstance(word, Failed):
                raise word.failure.as_error(f"plans on {measuring.host}")
            elif isinstance(word, Chosen | Broken):
                return word


def _is_open(run: Missing) -> bool:
    return run.experiment.run.executor in ("auto", "stacked")


def _check_versions(here: Here) -> None:
    """Refuse a machine on which the same run may come out otherwise."""
    for name, version in list_versions().items():
        if (there := here.versions.get(name)) != version:
            raise PotluckError(
                f"{here.host}: has {name} {there or 'not at all'}, and this machine {version}; "
                "install the same on all"
            )

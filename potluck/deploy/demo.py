"""A whole deployment on this machine: a server and devices as processes, compared with the simulator.

Everything is real but the distances: processes, folders, keys, TLS. With `kill`, processes are ended again
and again while they run, and must end with the same bytes.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, PotluckError
from potluck.core.job import ModelSpec
from potluck.core.trees import Params
from potluck.deploy.members import joining, pki, roster
from potluck.deploy.members.keyfiles import CA, DEVICE
from potluck.deploy.work.device_file import DeviceFile
from potluck.deploy.work.rows import PARTS
from potluck.execute.plan import ExecutionPlan
from potluck.experiment import folder, model_files
from potluck.experiment.prepare import Setting, prepare
from potluck.experiment.schema.experiment import Experiment

Say = Callable[[str], None]
HOME, OUT = "federation", "run"
WAIT = 120.0  # seconds for a server to listen


class Outcome(NamedTuple):
    """How a demonstration ended."""

    equal: bool
    difference: str
    run: Path


class Kill(NamedTuple):
    """Something that happens to the processes, once the run has come so far."""

    after: float  # share of the rounds
    what: str
    how: int
    who: tuple[str, ...]  # "server", "devices" or the name of a device
    pause: float = 0.0  # seconds before they are started again


KILLS = (
    Kill(0.1, "kill -9 of the server", signal.SIGKILL, ("server",)),
    Kill(0.3, "kill -9 of a device", signal.SIGKILL, ("device-1",)),
    Kill(0.4, "SIGTERM to a device", signal.SIGTERM, ("device-0",)),
    Kill(0.5, "70 s without a server", signal.SIGKILL, ("server",), 70.0),
    Kill(0.7, "kill -9 of all at once", signal.SIGKILL, ("server", "devices")),
)


def demonstrate(experiment: Experiment, place: Path, devices: int, kill: bool, say: Say) -> Outcome:
    """Lay out a federation below `place`, run it by processes, simulate it, and compare."""
    experiment = experiment.with_overrides(
        [f"data.clients={devices}", "run.executor=loop", "run.workers=1", "evaluate.panel=200"]
        # Longer tasks: processes are to be killed in the middle of one.
        + (["deploy.patience=300.0", "run.snapshot_every=2.0", "train.epochs=40"] if kill else [])
    )
    setting = prepare(experiment)
    if place.exists():
        raise ConfigError(f"out = {str(place)!r}: exists already; name another folder, or delete it")
    place.mkdir(parents=True)
    names = lay_out(setting, place)
    (place / "experiment.toml").write_text(setting.experiment.to_toml())
    fleet = Processes(place, names, say)
    try:
        fleet.start("server")
        for name in names:
            fleet.start(name)
        fleet.wait(setting.experiment.stop.rounds or 0, KILLS if kill else ())
    finally:
        fleet.stop()
    say("the same run in the simulator")
    sim = setting.start(ExecutionPlan())
    sim.run()
    difference = compare(place / OUT, sim.find_models(), setting)
    return Outcome(difference == "", difference, place / OUT)


def lay_out(setting: Setting, place: Path) -> list[str]:
    """A federation of a simulated one's rows: keys, a folder for each device; names of the devices."""
    federation, home = setting.federation, place / HOME
    pool, count = federation.pool, federation.devices
    home.mkdir()
    address = f"127.0.0.1:{find_free_port()}"
    pki.make_authority(home, "demo")
    pki.make_server(home, "127.0.0.1")
    dtype = next(name for name, kind in roster.TYPES.items() if kind == pool.x.dtype)
    common = roster.Common.model_validate(
        {"name": "demo", "shape": list(pool.shape), "classes": pool.classes, "dtype": dtype}
    )
    users = federation.fleet.user.tolist()
    names = [f"device-{i}" for i in range(count)]
    seats = []
    made = roster.Roster(
        federation=common, server=roster.Home(address=address, data="server.npz"), devices=[]
    )
    for i, name in enumerate(names):
        own = place / name
        own.mkdir()
        request = pki.make_request(own, name)
        certificate = pki.certify(home, name, request)
        (own / DEVICE).write_bytes(certificate)
        shutil.copy(home / CA, own / CA)
        parts = [federation.partition.rows(i, part) for part in PARTS]
        write_rows(own / "rows.npz", pool.x, pool.y, parts)
        DeviceFile(name, address, "rows.npz", joining.describe(made)).write(own)
        user = "" if users[i] < 0 else f"user-{users[i]}"
        seats.append(roster.Seat(name=name, certificate=pki.find_fingerprint(certificate), user=user))
    none = np.zeros(0, np.int64)
    write_rows(home / "server.npz", pool.x, pool.y, [federation.server_rows(), none, federation.test_rows()])
    roster.write(home, made.model_copy(update={"devices": seats}))
    return names


def write_rows(path: Path, x: torch.Tensor, y: torch.Tensor, parts: list[NDArray[np.int64]]) -> None:
    """Rows of a pool, as a device has them."""
    mine = torch.from_numpy(np.concatenate(parts))
    split = np.concatenate([np.full(len(part), i, np.int8) for i, part in enumerate(parts)])
    np.savez(path, x=x[mine].numpy(), y=y[mine].numpy(), split=split)


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Processes:
    """The server and the devices, each a process with a log; ended by their pids."""

    def __init__(self, place: Path, names: list[str], say: Say) -> None:
        self.place, self.names, self.say = place, names, say
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        home, out = self.place / HOME, self.place / OUT
        deploy = [sys.executable, "-m", "potluck", "deploy"]
        if name == "server":
            command = [*deploy, "serve", str(home), str(self.place / "experiment.toml"), "--out", str(out)]
        else:
            command = [*deploy, "device", str(self.place / name)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        with open(self.place / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def wait(self, rounds: int, kills: tuple[Kill, ...]) -> None:
        """Until the server has ended by itself; what is to be killed is, on the way."""
        left, shown = list(kills), -1
        while True:
            code = self.running["server"].poll()
            if code is not None:
                if code != 0:
                    raise PotluckError(f"the server ended with {code}: {self._read_end('server')}")
                return
            self._look_after_devices()
            done = self._count_rounds()
            if done != shown:
                shown = done
                self.say(f"round {done} of {rounds}")
            if left and done >= max(1, left[0].after * rounds):
                self._kill(left.pop(0))
            time.sleep(0.2)

    def stop(self) -> None:
        """End all of them: gently first."""
        for process in self.running.values():
            if process.poll() is None:
                process.terminate()
        for process in self.running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _kill(self, kill: Kill) -> None:
        self.say(kill.what)
        who = [n for name in kill.who for n in (self.names if name == "devices" else [name])]
        for name in who:
            self.running[name].send_signal(kill.how)
        for name in who:
            self.running[name].wait()
        time.sleep(kill.pause)
        for name in who:
            self.start(name)

    def _look_after_devices(self) -> None:
        for name in self.names:
            code = self.running[name].poll()
            if code is not None:
                raise PotluckError(f"{name} ended with {code}: {self._read_end(name)}")

    def _count_rounds(self) -> int:
        """As the server's log says."""
        said = (self.place / "server.log").read_text(errors="replace")
        rounds = re.findall(r"^round (\d+)", said, re.MULTILINE)
        return int(rounds[-1]) if rounds else 0

    def _read_end(self, name: str) -> str:
        lines = (self.place / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def compare(run: Path, simulated: dict[str, tuple[ModelSpec, Params]], setting: Setting) -> str:
    """Where a run's models differ from the simulator's, to the bit; empty: nowhere."""
    if not folder.is_finished(run):
        return "the run isn't finished"
    found = model_files.read_models(run)
    if set(found) != set(simulated):
        return f"views {sorted(found)}, not {sorted(simulated)}"
    for view, (spec, params) in simulated.items():
        ours = found[view].state_dict()
        theirs = setting.models[spec].module(params).state_dict()
        for name, tensor in theirs.items():
            if not torch.equal(ours[name], tensor):
                return f"{view}: {name} differs"
    return ""

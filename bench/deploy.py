"""What a deployment costs, over real HTTPS with mutual TLS on loopback: CPU, bytes on the wire, memory.

CPU is a whole process's: the server (conductor and hub) runs in one, devices in others. Bytes are counted by
a relay between a device and the hub: what both hand to their sockets, TLS and requests that wait included.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch

from bench import loopback, superlink
from potluck.core import codec
from potluck.core.job import ModelSpec
from potluck.deploy import parcels
from potluck.deploy.conduct.serve import serve
from potluck.deploy.demo import lay_out
from potluck.deploy.https.hub import Hub
from potluck.deploy.members import joining
from potluck.deploy.port import Outgoing
from potluck.deploy.sample import make_sample
from potluck.engine.schedule import Progress
from potluck.execute.plan import ExecutionPlan
from potluck.experiment.prepare import Setting, prepare
from potluck.jobs import Train

IDLE = 1_000  # devices
SMALL, LARGE = 60_000, 1_000_000  # bytes of a model
FOUR, ROUNDS, WARM = 4, 20, 2  # devices of a round; rounds, of which the first aren't counted
TRAINING = ["data.clients=4", "data.partition=iid", "algorithms.fedavg.clients=4", "train.epochs=20"]


class Mark(NamedTuple):
    """Something measured, and what it may be at most."""

    what: str
    found: float
    most: float
    form: str


class Spent(NamedTuple):
    """What rounds took a server, and its devices."""

    cpu: float  # seconds of the server's process for each reply
    round: float  # seconds of a round
    alone: float  # seconds that a round's jobs take one after another
    device: float  # bytes of the largest device, at its peak


PATIENCE = 120.0  # seconds for a message there and back, on a busy machine


class Line:
    """A hub in this process, and a device elsewhere that echoes; perhaps with a relay between them."""

    def __init__(self, home: Path, counted: bool) -> None:
        own = loopback.found(home, 1)[0]
        self.hub = Hub((loopback.HOST, 0), home, home / "blobs", joining.Members(home).find)
        self.relay = loopback.Relay(self.hub.address[1]) if counted else None
        self.device = loopback.start("echo", self.relay.port if self.relay else self.hub.address[1], own)
        self.sent = 0

    def send(self, head: bytes, body: bytes) -> None:
        """One message there and back."""
        self.sent += 1
        key = f"bench/0/{self.sent}"
        self.hub.post_all([Outgoing(0, key, head, body)])
        heard, end = dict[str, bytes](), time.monotonic() + PATIENCE
        while key not in heard and time.monotonic() < end:  # whatever else may come
            heard |= {each.key: each.parcel for each in self.hub.poll(1.0)}
        if heard.get(key) != head + body:
            raise SystemExit(
                f"bench.deploy: message {self.sent} didn't come back as it was ({len(heard)} did)"
            )

    def close(self) -> None:
        self.device.kill()
        self.device.wait()
        self.hub.close()
        if self.relay:
            self.relay.close()


def measure_message(home: Path, messages: int = 500) -> float:
    """Seconds of a hub's CPU for an empty message there and back."""
    line = Line(home, counted=False)
    try:
        for _ in range(20):
            line.send(b"", b"")
        began = time.process_time()
        for _ in range(messages):
            line.send(b"", b"")
        return (time.process_time() - began) / messages
    finally:
        line.close()


def measure_bytes(home: Path, size: int, messages: int = 20) -> tuple[float, float]:
    """Bytes on the wire over those of the codec, down and up, from the first connection on."""
    body = codec.encode({"params": {"weight": torch.zeros(size // 4)}})
    job = Train(ModelSpec("mlp"))
    head = parcels.pack(parcels.Work(f"{'0' * 32}/4/100", job, 1 << 60, "own", f"{'0' * 32}/4/99", 3))
    line = Line(home, counted=True)
    assert line.relay is not None
    try:
        for _ in range(messages):
            line.send(head, body)
        total = messages * len(body)
        return line.relay.down / total, line.relay.up / total
    finally:
        line.close()


def measure_rounds(place: Path) -> Spent:
    """Rounds of FedAvg with four device processes; then the same jobs in this process, one by one."""
    settings = [*TRAINING, f"stop.rounds={ROUNDS}", f"evaluate.rounds={ROUNDS}", "run.executor=loop"]
    setting = prepare(make_sample().with_overrides([*settings, "run.workers=1"]))
    place.mkdir()
    names = lay_out(setting, place)
    seen: list[tuple[float, float]] = []  # CPU and time, at the end of each round

    def look(progress: Progress) -> None:
        while len(seen) <= progress.round:
            seen.append((time.process_time(), time.perf_counter()))

    with open(place / "log", "wb") as log:
        command = [sys.executable, "-m", "potluck", "deploy", "device"]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        devices = [
            subprocess.Popen([*command, str(place / name)], stdout=log, stderr=log, env=env) for name in names
        ]
        try:
            serve(place / "federation", setting.experiment, place / "run", progress=look)
            peak = max(read_peak(device.pid) for device in devices)
        finally:
            for device in devices:
                device.terminate()
            for device in devices:
                device.wait()
    counted = seen[WARM:ROUNDS]  # the last round's end is the last evaluation's beginning
    cpu = (counted[-1][0] - counted[0][0]) / (FOUR * (len(counted) - 1))
    return Spent(cpu, median_gap([at for _, at in counted]), time_alone(setting), peak)


def time_alone(setting: Setting) -> float:
    """Seconds of a round whose jobs are done one after another, without a network."""
    sim, seen = setting.start(ExecutionPlan()), list[float]()
    sim.start()
    while sim.round < ROUNDS // 2:
        sim.step()
        while len(seen) <= sim.round:
            seen.append(time.perf_counter())
    sim.close()
    return median_gap(seen[WARM:])


def median_gap(times: list[float]) -> float:
    return median(after - before for before, after in pairwise(times))


def read_peak(pid: int) -> float:
    """Bytes that a process held at most."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return 1024.0 * int(found[1])


def measure_idle(home: Path) -> dict[str, float]:
    """What idle devices cost a server, in a process of its own."""
    command = [sys.executable, "-m", "bench.idle", str(home), str(IDLE)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=env, check=False)
    if done.returncode:
        raise SystemExit("bench.deploy: the idle devices failed")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def show(mark: Mark) -> None:
    word = "" if mark.found <= mark.most else "   MISSED"
    told, most = mark.form.format(mark.found), mark.form.format(mark.most)
    print(f"{mark.what:58} {told:>12} {most:>12}{word}", flush=True)


def main() -> None:
    print(f"{'':58} {'measured':>12} {'at most':>12}")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        _measure_all(Path(folder), show)


def _measure_all(place: Path, tell: Callable[[Mark], None]) -> None:
    message = measure_message(place / "message")
    tell(Mark("an empty message there and back: CPU of the hub", 1e3 * message, 2.0, "{:.2f} ms"))
    link = superlink.measure(place / "superlink")
    if link is None:
        print("  beside Flower's SuperLink: not installed (make flower)")
    else:
        tell(Mark(f"  over Flower's SuperLink ({1e3 * link:.0f} ms)", message / link, 1 / 50, "{:.4f}"))
    for size, most in ((SMALL, 1.02), (LARGE, 1.005)):
        for way, ratio in zip(("down", "up"), measure_bytes(place / f"bytes-{size}", size), strict=True):
            tell(Mark(f"bytes on the wire / codec's, {size:,} bytes, {way}", ratio, most, "{:.4f}"))
    spent = measure_rounds(place / "rounds")
    tell(Mark("a reply of 60 kB, all in: CPU of the server", 1e3 * spent.cpu, 10.0, "{:.1f} ms"))
    most = 1.5 * spent.alone + 0.3
    tell(Mark(f"a round of 4 ({spent.alone:.2f} s one after another)", spent.round, most, "{:.2f} s"))
    tell(Mark("a device, at its peak", spent.device / 1e6, 350.0, "{:.0f} MB"))
    idle = measure_idle(place / "idle")
    tell(Mark(f"{IDLE:,} idle devices: of a core", 100 * idle["share"], 2.0, "{:.1f} %"))
    tell(Mark("  memory of the server for each", idle["bytes"] / 1e3, 350.0, "{:.0f} kB"))
    print(f"  CPU of the server for each that comes: {1e3 * idle['came']:.1f} ms")

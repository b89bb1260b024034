"""FedAvg on a stock SuperLink and stock SuperNodes, beside the simulator; `make flower` runs it.

All are started as users start them, on loopback, telemetry off, and ended by their pids. The second run loses
its ServerApp to kill -9 in the middle and is started again by `flwr run`: both must end with the same bytes.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from potluck.deploy import demo
from potluck.deploy.conduct.run_folder import load_deployment
from potluck.deploy.conduct.standing import look
from potluck.deploy.sample import make_sample
from potluck.execute.plan import ExecutionPlan
from potluck.experiment import folder
from potluck.experiment.prepare import prepare

BIN = Path(sys.executable).parent
DEVICES, ROUNDS = 3, 3
PATIENCE = 1500.0  # seconds for one run


class Flower:
    """A SuperLink and its SuperNodes, each in a session of its own."""

    def __init__(self, place: Path) -> None:
        self.place, self.running = place, []
        self.port = demo.find_free_port()
        home = place / "flwr"
        home.mkdir()
        link = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
        (home / "config.toml").write_text(f"{link}insecure = true\n")
        off = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
        path = f"{BIN}:{os.environ['PATH']}"
        self.env = {**os.environ, **off, "FLWR_HOME": str(home), "PATH": path}

    def start(self, *command: str) -> int:
        with open(self.place / "flower.log", "ab") as log:
            made = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env=self.env,
                stdout=log,
                stderr=log,
                cwd=self.place,
                start_new_session=True,
            )
        self.running.append(made)
        return made.pid

    def begin(self) -> None:
        here = ("--insecure", "--host", "127.0.0.1", "--port")
        quiet = "--disable-runtime-dependency-installation"
        self.link = self.start("flower-superlink", *here, str(self.port), quiet)
        wait(lambda: is_open(self.port), 180, "a SuperLink")
        for i in range(DEVICES):
            node = ("--superlink", f"127.0.0.1:{self.port}", "--node-config")
            config = f'potluck-device="{self.place}/device-{i}"'
            self.start("flower-supernode", *here, str(demo.find_free_port()), *node, config)

    def run(self, out: Path) -> None:
        command = [str(BIN / "flwr"), "run", str(self.place / "app"), "here"]
        config = ["--run-config", f'potluck-run="{out}"']
        done = subprocess.run([*command, *config], env=self.env, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise SystemExit(f"flwr run: {done.stdout}{done.stderr}")

    def end(self) -> None:
        for process in self.running:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)  # its own session: what it has started, too
                    process.wait(10)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass


def find_below(pid: int, name: str) -> list[int]:
    """Processes that one has started, directly or not, whose command has a name in it."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_text() if entry.name.isdigit() else ""
            if stat and int(stat.rpartition(")")[2].split()[1]) == pid:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                found += [int(entry.name)] if name in command else []
                found += find_below(int(entry.name), name)
        except (OSError, ValueError):
            continue
    return found


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait(until, seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not until():
        if time.monotonic() > end:
            raise SystemExit(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.5)


def count_rounds(out: Path) -> int:
    if not (out / "records.jsonl").exists():
        return 0
    return look(out, load_deployment(out).terms).state.point.round


def check(place: Path) -> None:
    experiment = make_sample().with_overrides(
        [
            f"data.clients={DEVICES}",
            f"stop.rounds={ROUNDS}",
            f"evaluate.rounds={ROUNDS}",
            "run.executor=loop",
            "run.workers=1",
            "deploy.patience=300.0",
            "run.snapshot_every=2.0",
        ]
    )
    setting = prepare(experiment)
    demo.lay_out(setting, place)
    (place / "experiment.toml").write_text(setting.experiment.to_toml())
    args = ["federation", "experiment.toml", "--out", "app"]
    subprocess.run([str(BIN / "potluck"), "deploy", "flower", *args], cwd=place, check=True)
    sim = setting.start(ExecutionPlan())
    sim.run()
    flower, failed = Flower(place), 0
    try:
        flower.begin()
        for name, kill in (("plain", False), ("killed", True)):
            out, began = place / name, time.monotonic()
            flower.run(out)
            if kill:
                wait(lambda out=out: count_rounds(out) >= 1, PATIENCE, "a round")
                killed = find_below(flower.link, "flwr-serverapp")
                print(f"kill -9 of {len(killed)} processes of the ServerApp, after round {count_rounds(out)}")
                if not killed:
                    raise SystemExit("found no process of the ServerApp")
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(5)
                flower.run(out)
            wait(lambda out=out: folder.is_finished(out), PATIENCE, f"the run's end, {name}")
            wrong = demo.compare(out, sim.find_models(), setting)
            took = time.monotonic() - began
            print(f"{name}: {wrong or 'equal to the byte'}, {ROUNDS} rounds, {took:.0f} s", flush=True)
            failed += bool(wrong)
    except BaseException:
        print((place / "flower.log").read_text(errors="replace")[-6000:], file=sys.stderr)
        raise
    finally:
        flower.end()
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # nothing is left behind
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a new folder for all of it, which stays")
    out = parser.parse_args().out
    if out is not None:
        out.mkdir(parents=True)
        check(out.resolve())
    with tempfile.TemporaryDirectory(prefix="potluck-") as spare:
        check(Path(spare))

"""CPU of Flower's SuperLink for an empty message there and back, as `make flower` installs it; TLS on.

A stock SuperLink, one stock SuperNode, and an app whose ServerApp sends one message after another. What is
counted is the SuperLink's own process, from one reply to the next: what it answers meanwhile is in it.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from bench import loopback
from potluck.deploy.demo import find_free_port
from potluck.deploy.members import keyfiles

BIN = Path(__file__).resolve().parents[1] / ".venv-flower" / "bin"
MESSAGES, WAIT = 8, 300.0  # seconds
APP = """
import os
import time
from pathlib import Path

from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()


@client.train()
def train(message, context):
    return Message(RecordDict(), reply_to=message)


def read_cpu(pid):
    ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")


@server.main()
def main(grid, context):
    told = context.run_config
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.5)
    for i in range(told["messages"] + 1):  # the first isn't counted
        (reply,) = grid.send_and_receive([Message(RecordDict(), dst_node_id=nodes[0], message_type="train")])
        assert reply.has_content(), reply.error
        if i == 0:
            before = read_cpu(told["pid"])
    spent = (read_cpu(told["pid"]) - before) / told["messages"]
    partial = Path(told["out"] + ".partial")
    partial.write_text(str(spent))
    partial.rename(told["out"])
"""


def measure(place: Path) -> float | None:
    """Seconds of CPU a message; None where Flower isn't installed."""
    if not (BIN / "flower-superlink").exists():
        return None
    loopback.found(place, 0)
    link = find_free_port()
    env = {
        **os.environ,
        "FLWR_HOME": str(place / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    log, started = open(place / "log", "wb"), list[subprocess.Popen[bytes]]()  # noqa: SIM115

    def start(name: str, *options: str) -> subprocess.Popen[bytes]:
        command = [str(BIN / name), *options]
        started.append(
            subprocess.Popen(command, env=env, cwd=place, stdout=log, stderr=log, start_new_session=True)
        )
        return started[-1]

    ca, at = str(place / keyfiles.CA), f"{loopback.HOST}:{link}"
    keys = ["--ssl-ca-certfile", ca, "--ssl-certfile", str(place / keyfiles.SERVER)]
    keys += ["--ssl-keyfile", str(place / keyfiles.SERVER_KEY)]
    try:
        server = start("flower-superlink", *keys, "--host", loopback.HOST, "--port", str(link))
        _write_app(place, server.pid, at)
        _wait_for(lambda: _listens(link), started, place)
        own = ["--host", loopback.HOST, "--port", str(find_free_port())]
        start("flower-supernode", "--root-certificates", ca, "--superlink", at, *own)
        asked = start("flwr", "run", str(place / "app"), "bench")
        if asked.wait():
            _fail(place)
        started.remove(asked)
        _wait_for((place / "spent").exists, started, place)
        return float((place / "spent").read_text())
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)  # with the apps' processes, which are its children
            process.wait()
        log.close()


def _write_app(place: Path, link: int, address: str) -> None:
    app = place / "app"
    app.mkdir()
    (place / "flwr").mkdir()
    ca = place / keyfiles.CA
    (place / "flwr" / "config.toml").write_text(
        '[superlink]\ndefault = "bench"\n'
        f'[superlink.bench]\naddress = "{address}"\nroot-certificates = "{ca}"\n'
    )
    (app / "echoes.py").write_text(APP)
    (app / "pyproject.toml").write_text(
        '[project]\nname = "echoes"\nversion = "1.0.0"\ndependencies = []\n'
        '[tool.flwr.app]\npublisher = "potluck"\n'
        '[tool.flwr.app.components]\nserverapp = "echoes:server"\nclientapp = "echoes:client"\n'
        f'[tool.flwr.app.config]\npid = {link}\nmessages = {MESSAGES}\nout = "{place / "spent"}"\n'
    )


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((loopback.HOST, port)) == 0


def _wait_for(ready: Callable[[], bool], processes: list[subprocess.Popen[bytes]], place: Path) -> None:
    end = time.monotonic() + WAIT
    while not ready():
        if time.monotonic() > end or any(process.poll() is not None for process in processes):
            _fail(place)
        time.sleep(0.2)


def _fail(place: Path) -> NoReturn:
    raise SystemExit(f"bench.superlink: failed\n{(place / 'log').read_text()[-3000:]}")

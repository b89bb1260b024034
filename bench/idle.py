"""What idle devices cost their server. It is a process of its own: all of its memory is the server's."""

import json
import resource
import sys
import time
from pathlib import Path

from bench import loopback
from potluck.deploy.conduct.deployment import settle
from potluck.deploy.conduct.server import Server
from potluck.deploy.https.hub import HOLD, Hub
from potluck.deploy.members import joining, roster
from potluck.deploy.sample import make_sample

WAIT = 300.0  # seconds for all devices to come
WINDOW = 2 * HOLD  # every device asks again twice in it


def read_rss() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def measure(home: Path, devices: int) -> dict[str, float]:
    """Seconds of CPU and bytes for each of so many devices that come and wait."""
    hub = Hub((loopback.HOST, 0), home, home / "blobs", joining.Members(home).find, say=print)
    deployment = settle(make_sample(), roster.read(home), {})
    (home / "run").mkdir()
    server = Server(
        deployment.terms,
        hub,
        home / "run",
        identity=deployment.identity,
        run="idle",
        start_with=devices + 1,
    )
    empty, began, cpu = read_rss(), time.monotonic(), time.process_time()
    crowd = loopback.start("wait", hub.address[1], home)
    try:
        while len(server.sessions) < devices:
            server.step()
            if time.monotonic() > began + WAIT or crowd.poll() is not None:
                raise SystemExit(f"bench.idle: {len(server.sessions)} of {devices} devices came")
        came, now = time.process_time(), time.monotonic()
        while time.monotonic() < now + WINDOW:
            server.step()
        spent, took = time.process_time() - came, time.monotonic() - now
        there, held = len(hub.nodes()), read_rss() - empty
    finally:
        crowd.kill()
        crowd.wait()
    server.close()
    hub.close()
    if there < devices:
        raise SystemExit(f"bench.idle: {devices - there} of {devices} devices left")
    return {"came": (came - cpu) / devices, "share": spent / took, "bytes": held / devices}


if __name__ == "__main__":
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    loopback.found(folder, count)
    json.dump(measure(folder, count), sys.stdout)

"""Pictures of the live page, each while something runs: .venv/bin/python docs/_watch_pictures.py

With names of pictures, these alone. Three scenes: a comparison by day, cohorts in the dark, tiers on a phone
after the command was killed.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from _browser import Browser, open_browser

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
AWAY = ("fleet.availability=on_off", "fleet.period=300", "fleet.share=0.6")
ROW = """[...document.querySelectorAll('.runs tbody tr')].find(row => row.innerText.includes({}))"""


class Scene(NamedTuple):
    """What is run, when its picture is taken, and how."""

    picture: str
    file: str
    algorithms: str
    settings: tuple[str, ...]
    row: str  # whose details are shown
    at: float  # share of this run that is done by then
    width: int
    scheme: str
    height: int | None = None  # of the window; None: the whole page
    kill: bool = False


SCENES = (
    Scene("watch-light.png", "examples/demo.toml", "fedavg,maverick,shufflefl",
          ("stop.seconds=150", *AWAY), "maverick, seed 2", 0.4, 1280, "light"),
    Scene("watch-cohorts.png", "examples/auxo.toml", "fedavg,ifca,auxo",
          (), "auxo, seed 1", 0.6, 1000, "dark"),
    Scene("watch-phone.png", "examples/demo.toml", "fedavg,fedrac",
          ("stop.seconds=150", *AWAY), "fedrac, seed 1", 0.3, 400, "light", 1250, True),
)  # fmt: skip


@contextlib.contextmanager
def slow_down(group: int) -> Iterator[None]:
    """Let processes work a sixth of the time: of runs of seconds there is little to see."""
    done = threading.Event()

    def pace() -> None:
        with contextlib.suppress(ProcessLookupError):  # they have ended
            while not done.wait(0.05):
                os.killpg(group, signal.SIGSTOP)
                done.wait(0.25)
                os.killpg(group, signal.SIGCONT)

    thread = threading.Thread(target=pace)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def take(scene: Scene, browser: Browser, room: Path) -> None:
    room.mkdir()
    out = f"runs/{Path(scene.file).stem}"
    (room / "runs").mkdir()
    file = str(ROOT / scene.file)
    command = [sys.executable, "-m", "potluck", "compare", file, "--out", out, "--seeds", "1,2"]
    command += ["--algorithms", scene.algorithms, "--jobs", "2"]
    command += [part for setting in (*scene.settings, "run.executor=loop") for part in ("--set", setting)]
    watched = subprocess.Popen(
        [sys.executable, "-m", "potluck", "watch", out, "--port", "0"], cwd=room, stdout=subprocess.PIPE
    )
    run = subprocess.Popen(command, cwd=room, start_new_session=True)
    try:
        with slow_down(run.pid):
            assert watched.stdout is not None
            found = re.search(r"http\S+", watched.stdout.readline().decode())
            assert found is not None
            browser.fit(scene.width, scene.height or 900, scene.scheme, 1.5 if scene.width < 600 else 1.0)
            browser.open(found[0])
            row = ROW.format(repr(scene.row))
            share = f"{row}?.querySelector('[role=progressbar]').getAttribute('aria-valuenow')"
            browser.wait(lambda: float(browser.ask(share) or 0) >= 100 * scene.at, 600)
            browser.ask(f"{row}.click()")
            if scene.kill:
                os.killpg(run.pid, signal.SIGKILL)
                browser.wait(lambda: "stopped" in browser.ask(f"{row}.innerText"))
            time.sleep(2)
            browser.shoot(IMAGES / scene.picture, whole=scene.height is None)
            assert browser.said == [], browser.said
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        watched.terminate()
        watched.wait()


def main() -> None:
    with tempfile.TemporaryDirectory() as room, open_browser() as browser:
        for number, scene in enumerate(SCENES):
            if scene.picture in (sys.argv[1:] or [scene.picture]):
                take(scene, browser, Path(room, str(number)))


if __name__ == "__main__":
    main()

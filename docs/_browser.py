"""Chromium without a window, driven by its protocol over a pipe: for pictures of pages, and tests of them."""

import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio"),
    *("--disable-dev-shm-usage", "--remote-debugging-pipe", "about:blank"),
)
PATIENCE = 60.0  # seconds for an answer


def find_chromium() -> str | None:
    """The browser's path; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab. `asked`: addresses that it requested; `said`: what went wrong in its console."""

    def __init__(self, to: int, of: int) -> None:
        self.to, self.of = to, of
        self.numbers = itertools.count(1)
        self.rest, self.tab = b"", ""
        self.asked: list[str] = []
        self.said: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.tab = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What a method of the protocol returns; what happens meanwhile is noted."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        os.write(
            self.to, json.dumps(message | ({"sessionId": self.tab} if self.tab else {})).encode() + b"\0"
        )
        while (heard := self._hear()).get("id") != number:
            self._note(heard)
        if "error" in heard:
            raise RuntimeError(f"{method}: {heard['error']}")
        return dict(heard["result"])

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self.wait(lambda: self.ask("document.readyState") == "complete")

    def ask(self, expression: str) -> Any:
        """What JavaScript on the page comes to."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"]["description"])
        return found["result"].get("value")

    def wait(self, until: Callable[[], Any], patience: float = PATIENCE) -> None:
        end = time.monotonic() + patience
        while not until():
            assert time.monotonic() < end, self.ask("document.body.innerText")
            time.sleep(0.05)

    def fit(self, width: int, height: int, scheme: str = "light", scale: float = 1.0) -> None:
        """The size of the window, and whether its reader likes it dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=width < 600)  # fmt: skip
        liked = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=liked)

    def shoot(self, place: Path, whole: bool = False) -> None:
        """A picture of what is seen, or of the whole page."""
        time.sleep(0.3)  # what has changed is drawn
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        place.write_bytes(base64.b64decode(taken["data"]))

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            read = os.read(self.of, 1 << 20)
            assert read, "Chromium has ended"
            self.rest += read
        line, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(line))

    def _note(self, heard: dict[str, Any]) -> None:
        what, told = heard.get("method"), heard.get("params", {})
        if what == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"])
        elif what == "Runtime.exceptionThrown":
            self.said.append(str(told["exceptionDetails"]))
        elif what == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.said.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif what == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
            self.said.append(str(told["args"]))


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser with a profile of its own, which is gone afterwards."""
    path = find_chromium()
    assert path is not None, f"no Chromium here ({', '.join(NAMES)}): apt-get install chromium"
    (its_end, to), (of, its_other_end) = os.pipe(), os.pipe()

    def place() -> None:  # Chromium reads from 3 and writes to 4
        high = [os.dup(its_end), os.dup(its_other_end)]
        for number, fd in zip((3, 4), high, strict=True):
            os.dup2(fd, number)
            os.set_inheritable(number, True)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as room:
        command = [path, f"--user-data-dir={room}", *OPTIONS]
        quiet = subprocess.DEVNULL
        chromium = subprocess.Popen(
            command, stdout=quiet, stderr=quiet, preexec_fn=place, close_fds=False, start_new_session=True
        )
        os.close(its_end), os.close(its_other_end)
        try:
            yield Browser(to, of)
        finally:
            os.killpg(chromium.pid, signal.SIGKILL)
            chromium.wait()
            os.close(to), os.close(of)

"""A device's process: it listens, works, and reports; it goes on through anything that can be waited out.

A thread listens while a job runs, so that the job can be called off. What was posted twice is done once.
"""

import queue
import threading
import time
from collections.abc import Callable

import urllib3

from potluck.core.errors import DecodeError
from potluck.deploy import parcels
from potluck.deploy.https.wire import Received, UnwelcomeError, Wire, describe
from potluck.deploy.work.device import Device
from potluck.deploy.work.manners import Manners

PAUSE = 1.0  # seconds after something went wrong
MOST_PAUSE = 15.0
SMALL = 4096  # bytes; what tells of a failure is shorter


class Agent:
    """A device at its wire."""

    def __init__(
        self,
        device: Device,
        wire: Wire,
        say: Callable[[str], None] = lambda line: None,
        manners: Manners | None = None,
    ) -> None:
        self.device, self.wire, self.say, self.manners = device, wire, say, manners or Manners()
        self.todo: queue.SimpleQueue[Received | None] = queue.SimpleQueue()
        self.known: dict[str, None] = {}  # keys that wait or are worked on
        self.called_off: dict[str, None] = {}
        self.over = threading.Event()
        self.failed: BaseException | None = None
        self.done = 0  # reports that have arrived

    def run(self) -> None:
        """Until somebody ends it."""
        listener = threading.Thread(target=self._listen, daemon=True)
        listener.start()
        while (received := self.todo.get()) is not None:
            self._work(received)
            self.known.pop(received.key, None)
        if self.failed is not None:
            raise self.failed

    def end(self) -> None:
        """Leave in an orderly way; what is under way is dropped, and asked for again when it is back."""
        self.over.set()
        self.todo.put(None)
        self.wire.leave()

    def _work(self, received: Received) -> None:
        key = received.key

        def halt() -> bool:
            return key in self.called_off or self.over.is_set()

        self.manners.wait(self.over.wait)
        if halt():
            return
        end = time.monotonic() + self.manners.longest
        report = self.device.answer(
            received.parcel, received.seconds, lambda: halt() or time.monotonic() > end
        )
        if not report and time.monotonic() > end and not halt():
            why = f"a job may take {self.manners.longest:g} s on this device"
            report = parcels.pack(parcels.Failed(key, "refused", why))
        if 0 < len(report) < SMALL:
            self._tell(report)
        if report and not halt() and self.wire.report(key, report, halt):
            self.done += 1

    def _tell(self, report: bytes) -> None:
        """What couldn't be done is said here too."""
        told, _ = parcels.unpack_report(report)
        if isinstance(told, parcels.Failed):
            self.say(parcels.make_line(f"{told.status}: {told.why}"))

    def _listen(self) -> None:
        pause, told = PAUSE, ""
        while not self.over.is_set():
            try:
                received = self.wire.receive()
                if told:
                    self.say("the server is there again")
                pause, told = PAUSE, ""
                if received is not None:
                    self._take(received)
            except UnwelcomeError as error:
                if not told:
                    self.say(f"not let in: {error}")
                told = "unwelcome"
                self._wait(pause)
                pause = min(2 * pause, MOST_PAUSE)
            except (OSError, urllib3.exceptions.HTTPError) as error:
                if not told and not self.over.is_set():
                    self.say(f"no connection ({describe(error)}); trying again")
                told = "away"
                self._wait(pause)
                pause = min(1.5 * pause, MOST_PAUSE)
            except BaseException as error:  # shown by the thread that works: this one has nobody to tell
                self.failed = error
                self.todo.put(None)
                return

    def _wait(self, seconds: float) -> None:
        self.over.wait(seconds)

    def _take(self, received: Received) -> None:
        try:
            head, _ = parcels.unpack_order(received.parcel, self.device.allow, self.device.limits)
        except DecodeError:
            head = None  # the device refuses it, and says why
        if isinstance(head, parcels.CallOff):
            self.called_off[head.key] = None
            while len(self.called_off) > 100:
                del self.called_off[next(iter(self.called_off))]
        elif received.key not in self.known:
            self.known[received.key] = None
            self.todo.put(received)

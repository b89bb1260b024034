"""Who may hold a connection to a hub, how many and how long; and what is said of those who may not.

A connection is known by its certificate before it has sent a byte. Members have a few connections each;
whoever has no certificate of a member may join, and is put out after seconds. What is wrong with a
connection is its peer's affair and is told in one line, a fault of ours with its traceback.
"""

import asyncio
import logging
import ssl
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from aiohttp import http_exceptions, web

from potluck.deploy.members import keyfiles

EACH = 8  # connections of one member
STRANGERS = 32  # connections of all who aren't members
STAY = 10.0  # seconds that a stranger's connection lasts
WINDOW = 600.0  # seconds in which a line is said once
LINES = 100  # in that time
FIELD = 32 << 10  # bytes of a header's field: names of a large report's pieces
_SAYINGS = {"HTTP_REQUEST": "plain text", "WRONG_VERSION_NUMBER": "plain text, or an old TLS"}
_NOWHERE = logging.Logger("nowhere", logging.CRITICAL)
Say = Callable[[str], None]


class Sparing:
    """Says each line once in a while: who knocks all day must not fill a disk."""

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self.say, self.clock, self.since = say, clock, clock()
        self.said: set[str] = set()
        self.unsaid = 0

    def __call__(self, line: str) -> None:
        if self.clock() - self.since >= WINDOW:
            if self.unsaid:
                self.say(f"{self.unsaid} more lines of that kind in {WINDOW:g} s")
            self.since, self.unsaid = self.clock(), 0
            self.said.clear()
        if line in self.said or len(self.said) >= LINES:
            self.unsaid += 1
        else:
            self.said.add(line)
            self.say(line)


class Doors:
    """The connections of a hub."""

    def __init__(self, is_member: Callable[[bytes], bool], refuse: Say) -> None:
        self.is_member, self.refuse = is_member, refuse
        # By certificate, the oldest first; of all strangers under an empty one.
        self.open: dict[bytes, dict[asyncio.Transport, None]] = {}
        self.logger = self._make_logger()

    def enter(self, transport: asyncio.Transport, certificate: bytes | None) -> bytes:
        """A connection is there: under what it counts. Where there are enough, one is closed."""
        whose = certificate if certificate is not None and self.is_member(certificate) else b""
        mine, most = self.open.setdefault(whose, {}), EACH if whose else STRANGERS
        mine[transport] = None
        if len(mine) > most:
            self.refuse(f"closed a connection: more than {most} at a time")
            # A member's oldest is the one that broke without a word.
            (next(iter(mine)) if whose else transport).abort()
        return whose

    def leave(self, transport: asyncio.Transport, whose: bytes) -> None:
        mine = self.open.get(whose, {})
        mine.pop(transport, None)
        if not mine:
            self.open.pop(whose, None)

    def make_context(self, keys: Path) -> ssl.SSLContext:
        """TLS with the server's certificate, which asks for the other's."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_OPTIONAL  # who has none may join, and nothing else
        context.num_tickets = 0  # nobody takes a session up again
        context.load_verify_locations(keys / keyfiles.CA)
        context.load_cert_chain(keys / keyfiles.SERVER, keys / keyfiles.SERVER_KEY)
        refuse = self.refuse

        class Told(ssl.SSLObject):
            """asyncio keeps to itself why a handshake failed."""

            def do_handshake(self) -> None:
                try:
                    super().do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    raise
                except ssl.SSLError as error:
                    refuse(f"closed a connection: {_describe(error)}")
                    raise

        context.sslobject_class = Told
        return context

    def _make_logger(self) -> logging.Logger:
        """What aiohttp tells goes to the same place, without tracebacks for what others did."""
        refuse = self.refuse

        class Handler(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                error = record.exc_info[1] if record.exc_info else None
                if isinstance(error, http_exceptions.HttpProcessingError | ConnectionError):
                    refuse(f"closed a connection: no HTTP ({type(error).__name__})")
                elif error is not None:
                    traceback.print_exception(error)
                elif record.levelno >= logging.WARNING:
                    refuse(record.getMessage())

        logger = logging.Logger("potluck.hub", logging.DEBUG)  # who sends no HTTP is told of as lowly as that
        logger.addHandler(Handler())
        return logger


class Connection(web.RequestHandler):
    """A connection of a hub."""

    __slots__ = ("_came", "_doors", "_timer")

    def __init__(self, doors: Doors, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            logger=doors.logger,
            access_log=_NOWHERE,
            keepalive_timeout=75.0,
            max_field_size=FIELD,
            auto_decompress=False,
        )
        self._doors = doors
        self._came: tuple[asyncio.Transport, bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        encrypted: ssl.SSLObject = transport.get_extra_info("ssl_object")
        self._came = (transport, self._doors.enter(transport, encrypted.getpeercert(True)))
        if not self._came[1]:
            self._timer = self._loop.call_later(STAY, transport.abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()
        if self._came is not None:
            self._doors.leave(*self._came)
            self._came = None


def _describe(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate isn't this federation's ({error.verify_message})"
    return _SAYINGS.get(error.reason or "", f"no TLS ({error.reason})")

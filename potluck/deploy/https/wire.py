"""The HTTPS port, a device's end: one request waits for work, another sends what came of it."""

import contextlib
import hashlib
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import urllib3

from potluck.core.errors import ConfigError, PotluckError
from potluck.deploy.members import keyfiles

HOLD = 20.0  # seconds; as the hub's
PART = 4 << 20  # bytes of a piece, of a large report or of a large body
MOST = 16 << 20  # bytes of any other answer
WAITS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)  # seconds between tries


class UnwelcomeError(PotluckError):
    """The server doesn't let this device in."""


class Received(NamedTuple):
    """A parcel that has come."""

    key: str
    parcel: bytes
    seconds: float  # that its body took


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    data: bytes


def describe(error: Exception) -> str:
    """Why there is no connection, in a few words."""
    if isinstance(error, urllib3.exceptions.SSLError):
        return f"TLS: {error}"[:200]
    return str(error) if type(error) is ConnectionError else type(error).__name__


class Wire:
    """A device's connection to its server; it may break at any time, and is made anew."""

    def __init__(self, address: str, folder: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            context.load_verify_locations(folder / keyfiles.CA)
            context.load_cert_chain(folder / keyfiles.DEVICE, folder / keyfiles.DEVICE_KEY)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{folder}: its certificate can't be read ({error}); join again") from None
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(f"address = {address!r}: write host:port")
        limits = urllib3.Timeout(connect=5, read=HOLD + 20)
        self.http = urllib3.HTTPSConnectionPool(
            host, int(port), maxsize=4, ssl_context=context, retries=False, timeout=limits
        )
        self.session, self.epoch, self.after = secrets.token_hex(8), "", 0
        self.begun = ("", bytearray())  # a body that hasn't come wholly: its name, and its beginning

    def receive(self) -> Received | None:
        """The next parcel, when there is one; None if there was none for a while."""
        answer = self._ask("GET", f"/v1/next?session={self.session}&epoch={self.epoch}&after={self.after}")
        self.epoch = answer.headers.get("epoch", "")
        if answer.status == 204:
            return None
        if answer.status in (403, 409):
            raise UnwelcomeError(" ".join(answer.data[:200].decode(errors="replace").split()))
        began = time.perf_counter()
        line, _, head = answer.data.partition(b"\n")
        try:
            serial, key = int(answer.headers["serial"]), answer.headers["key"]
            body = self._fetch(*line.decode("ascii").split(" ")) if line else b""
        except (KeyError, TypeError, ValueError):
            raise ConnectionError(f"the server answered {answer.status}") from None
        self.after = serial
        return Received(key, head + body, time.perf_counter() - began)

    def report(self, key: str, parcel: bytes, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Send what came of a parcel, until it has arrived; False: nobody waits for it any more."""
        while True:
            headers, data = {}, parcel
            if len(parcel) > PART:
                pieces = [parcel[i : i + PART] for i in range(0, len(parcel), PART)]
                names = [hashlib.sha256(piece).hexdigest() for piece in pieces]
                for name, piece in zip(names, pieces, strict=True):
                    if self._put(f"/v1/parts/{name}", piece, {}, give_up) == 413:
                        break  # too large: the server says so of the report too
                headers, data = {"parts": ",".join(names)}, b""
            status = self._put(f"/v1/reports/{key}", data, headers, give_up)
            if status != 409:  # else the server was started anew, and pieces are lost
                return status < 300

    def leave(self) -> None:
        """Say that it goes."""
        with contextlib.suppress(OSError, urllib3.exceptions.HTTPError):
            self._ask("POST", "/v1/leave", timeout=2.0)

    def close(self) -> None:
        self.http.close()

    def _fetch(self, name: str, size: str) -> bytes:
        """A large body, by pieces: each is a sign of life, and a broken download goes on where it was."""
        if self.begun[0] != name:
            self.begun = (name, bytearray())
        found = self.begun[1]
        while len(found) < int(size):
            last = min(len(found) + PART, int(size)) - 1
            answer = self._ask("GET", f"/v1/blobs/{name}", headers={"Range": f"bytes={len(found)}-{last}"})
            if answer.status != 206:
                raise ConnectionError(f"a body is gone ({answer.status}): it will be posted again")
            found += answer.data
        self.begun = ("", bytearray())
        if hashlib.sha256(found).hexdigest() != name:
            raise ConnectionError("a body came damaged: it will be posted again")
        return bytes(found)

    def _put(self, path: str, body: bytes, headers: dict[str, str], give_up: Callable[[], bool]) -> int:
        waits = iter(WAITS)
        while not give_up():
            try:
                answer = self._ask("PUT", path, body, headers)
                if answer.status < 500:
                    return answer.status
            except (OSError, urllib3.exceptions.HTTPError):
                pass
            time.sleep(next(waits, WAITS[-1]))
        return 410

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> _Answer:
        limit = self.http.timeout if timeout is None else urllib3.Timeout(timeout)
        answer = self.http.request(
            method, path, body=body, headers=headers, timeout=limit, preload_content=False
        )
        try:
            data = answer.read(MOST)
            if answer.read(1):
                raise ConnectionError(f"an answer of more than {MOST} bytes")
        finally:
            answer.release_conn()
        return _Answer(answer.status, answer.headers, data)

"""How a device becomes a member: it is invited by a file, makes its own key, and has it certified.

An invitation holds the server's address, its authority's certificate and a secret for one use within a day;
it goes to the device by a way that its owners trust. The key is made on the device and never leaves it.
"""

import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from potluck.core import safe_files
from potluck.core.errors import ConfigError, PotluckError
from potluck.deploy.members import keyfiles, pki, roster
from potluck.deploy.work.device_file import Facts
from potluck.deploy.work.join import Invitation

INVITES = "invites.json"
DAY = 86_400.0
MOST = 64 << 10  # bytes of a request to join


class _Open(TypedDict):
    digest: str
    until: float


def invite(folder: Path, name: str, user: str = "") -> Invitation:
    """A place for a device, and its invitation; an earlier one of the same name is no longer valid."""
    found = roster.read(folder)
    at = found.find_seat(name)
    if at is None:
        if found.federation.capacity is not None and len(found.devices) >= found.federation.capacity:
            raise ConfigError(
                f"federation.capacity = {found.federation.capacity}: all numbers are taken; raise it"
            )
        found.devices.append(roster.Seat(name=name, user=user))
        roster.write(folder, found)
    elif found.devices[at].certificate:
        raise ConfigError(f"name = {name!r}: has joined already; `potluck deploy revoke` it first")
    secret, invites = secrets.token_urlsafe(24), _read_invites(folder)
    invites[name] = {"digest": _digest(secret), "until": time.time() + DAY}
    _write_invites(folder, invites)
    authority = (folder / keyfiles.CA).read_text()
    return {
        "name": name,
        "address": found.server.address,
        "authority": authority,
        "secret": secret,
        "federation": describe(found),
    }


def revoke(folder: Path, name: str) -> None:
    """Lock a device out, at once; its number stays its own."""
    found = roster.read(folder)
    at = found.find_seat(name)
    if at is None:
        known = ", ".join(seat.name for seat in found.devices) or "none"
        raise ConfigError(f"name = {name!r}: no such device; known: {known}")
    found.devices[at] = found.devices[at].model_copy(update={"certificate": ""})
    roster.write(folder, found)
    invites = _read_invites(folder)
    if invites.pop(name, None) is not None:
        _write_invites(folder, invites)


def describe(found: roster.Roster) -> Facts:
    """What a device must know of its federation."""
    c = found.federation
    return {
        "name": c.name, "shape": c.shape, "classes": c.classes, "dtype": c.dtype, "mean": c.mean, "std": c.std
    }  # fmt: skip


class Registrar:
    """Certifies whom it has invited; the hub asks it, in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lock = folder, threading.Lock()

    def admit(self, asked: bytes) -> tuple[int, bytes]:
        """What a new device says; a status, and what it is told."""
        try:
            told: dict[str, object] = json.loads(asked) if len(asked) <= MOST else {}
            name, secret, request = (told[key] for key in ("name", "secret", "request"))
        except (ValueError, TypeError, KeyError):
            return 400, b"a request to join has name, secret and request"
        if not (isinstance(name, str) and isinstance(secret, str) and isinstance(request, str)):
            return 400, b"a request to join has texts"
        with self.lock:
            return self._admit(name, secret, request)

    def _admit(self, name: str, secret: str, request: str) -> tuple[int, bytes]:
        invites = _read_invites(self.folder)
        invited = invites.get(name)
        if invited is None or not hmac.compare_digest(invited["digest"], _digest(secret)):
            return 403, b"no such invitation: it was used, revoked or replaced by another"
        if invited["until"] < time.time():
            return 403, b"this invitation is older than a day: ask for another"
        found = roster.read(self.folder)
        at = found.find_seat(name)
        if at is None:
            return 403, b"no place of this name in the federation"
        try:
            certificate = pki.certify(self.folder, name, request.encode())
        except ConfigError as error:
            return 400, str(error).encode()
        print_of = pki.find_fingerprint(certificate)
        found.devices[at] = found.devices[at].model_copy(update={"certificate": print_of})
        roster.write(
            self.folder, found
        )  # first: an answer that is lost can be asked for again, by a new invite
        del invites[name]
        _write_invites(self.folder, invites)
        return 200, certificate


class Members:
    """Who has which certificate, as the roster says now: it is read again when it changes."""

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda line: None) -> None:
        self.folder, self.say, self.at = folder, say, (-1, -1)
        self.wrong = ""  # why the file can't be read now
        self.roster = roster.read(folder)

    def find(self, certificate: str) -> int | None:
        try:
            status = (self.folder / roster.FILE).stat()
            if (status.st_mtime_ns, status.st_size) != self.at:
                self.at = (status.st_mtime_ns, status.st_size)
                self.roster, self.wrong = roster.read(self.folder), ""
        except (OSError, PotluckError) as error:  # somebody is at it
            if self.wrong != str(error):
                self.say(f"{error}; the members are those of before")
            self.wrong = str(error)
        return self.roster.find_number(certificate)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _read_invites(folder: Path) -> dict[str, _Open]:
    if not safe_files.has_file(folder, INVITES):
        return {}
    try:
        found: dict[str, _Open] = json.loads(safe_files.read_file(folder, INVITES))
    except ValueError:
        raise ConfigError(f"{folder / INVITES}: damaged; delete it, and invite again") from None
    return found


def _write_invites(folder: Path, invites: dict[str, _Open]) -> None:
    pki.write_private(folder / INVITES, json.dumps(invites).encode())

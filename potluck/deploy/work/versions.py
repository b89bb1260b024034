"""What a device remembers between tasks: by slot, the version that counted and the newest one.

A version is one file: what is kept, and the report that was sent with it, written together. A device that is
killed has done both or neither, and it answers what it has done already from here. Which version counted, the
server says with the next work of that slot (`base`): a device can't know whether its report came in time.
"""

import hashlib
from collections.abc import Hashable
from pathlib import Path

from potluck.core import codec, safe_files
from potluck.core.codec import value
from potluck.core.errors import DecodeError, SnapshotError
from potluck.core.trees import Tree

FOLDER = "memory"


@value(name="deploy.Version", eq=False)
class Version:
    """What one piece of work left behind."""

    key: str
    keep: Tree  # None: the memory is that of the work before
    report: bytes  # the parcel that was sent


class Memory:
    """Versions by slot and key, below a device's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)

    def recall(self, slot: Hashable, base: str | None) -> Tree:
        """What was kept by the work that counted; None if there was none."""
        if base is None:
            return None
        found = self._read(slot, base)
        if found is None:
            raise SnapshotError(f"{self.folder}: what {base} kept is missing: put the old folder back")
        return found.keep

    def find_report(self, slot: Hashable, key: str) -> bytes | None:
        """The report on work that was done already."""
        found = self._read(slot, key)
        return None if found is None else found.report

    def store(self, slot: Hashable, base: str | None, version: Version) -> None:
        """Keep a new version beside the one that counted; all others are forgotten."""
        place = _name_slot(slot)
        body = codec.encode(version)
        name = _name_key(version.key)
        digest = hashlib.blake2b(body, digest_size=16).digest()
        safe_files.write_file(self.folder, f"{place}/{name}", digest, body)
        wanted = {name, "" if base is None else _name_key(base)}
        for old in safe_files.list_names(self.folder, place):
            if old not in wanted and not old.startswith("."):
                safe_files.remove_file(self.folder, f"{place}/{old}")

    def _read(self, slot: Hashable, key: str) -> Version | None:
        name = f"{_name_slot(slot)}/{_name_key(key)}"
        if not safe_files.has_file(self.folder, name):
            return None
        data = safe_files.read_file(self.folder, name)
        if hashlib.blake2b(data[16:], digest_size=16).digest() != data[:16]:
            raise SnapshotError(f"{self.folder / name}: damaged; put the old file back")
        try:
            found = codec.decode(data[16:])
        except DecodeError as error:
            raise SnapshotError(f"{self.folder / name}: can't be read ({error}); put it back") from None
        if not isinstance(found, Version) or found.key != key:
            raise SnapshotError(f"{self.folder / name}: holds something else; put the old file back")
        return found


def _name_slot(slot: Hashable) -> str:
    return f"{FOLDER}/{hashlib.sha256(codec.encode(slot)).hexdigest()[:16]}"


def _name_key(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]

"""What a run records: long-format lines, append-only, on disk when the run has a folder.

Checksums lie in a file beside it, so that scripts read the lines as they are (see `record_sums`).
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from potluck.core import safe_files
from potluck.core.errors import SnapshotError, StorageError
from potluck.core.records import Group, Record
from potluck.engine.kept_records import KeptRecords
from potluck.engine.record_sums import RecordSums


class Records:
    """One line a fact: round, virtual time, metric, value, and whose it is."""

    def __init__(self, path: Path | None) -> None:
        self.kept = KeptRecords()
        self.file: BinaryIO | None = (
            None if path is None else safe_files.open_file(path.parent, path.name, "ab")
        )
        self.sums = None if path is None else RecordSums(path)
        self.listener: Callable[[Record, bool], None] | None = None  # hears a copy, and whether it is a note

    def write(
        self,
        round: int,
        time: float,
        metric: str,
        value: Any,
        *,
        node: int | None = None,
        group: Group | None = None,
        view: str | None = None,
        noted: bool = False,  # by a rule, or at any time but an evaluation's
    ) -> None:
        record: Record = {"round": round, "time": time, "metric": metric, "value": value}
        if node is not None:
            record["node"] = node
        if group is not None:
            record["group"] = group
        if view is not None:
            record["view"] = view
        if self.listener is not None:
            self.listener(json.loads(_dump(record)), noted)
        if self.file is None or self.sums is None:
            self.kept.append(record)
            return
        line = _dump(record).encode() + b"\n"
        self.sums.add(line)
        try:
            self.file.write(line)
        except OSError as error:
            raise safe_files.explain_failure(error, self.file.name, "written", StorageError) from None

    def publish(self) -> None:
        """Let others read what has been written so far; it need not have reached the disk."""
        if self.file is not None:
            with safe_files.naming(self.file.name, "written", StorageError):
                self.file.flush()

    def flush(self) -> int:
        """All to disk; the length so far, which a snapshot remembers."""
        if self.file is None or self.sums is None:
            return len(self.kept)
        length = flush(self.file)
        self.sums.write(length)
        return length

    def truncate(self, length: int) -> None:
        """Forget what was written after a snapshot."""
        if self.file is None or self.sums is None:
            self.kept.cut(length)
        else:
            self.sums.cut(length)  # first: none may be of more than there is
            cut(self.file, length)

    def close(self) -> None:
        if self.file is not None:
            close(self.file)


def flush(file: BinaryIO) -> int:
    """All of a log to disk; its length."""
    with safe_files.naming(file.name, "written", StorageError):
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def close(file: BinaryIO) -> None:
    """Close a log; what it still has to write may not fit on the disk."""
    with safe_files.naming(file.name, "written", StorageError):
        file.close()


def cut(file: BinaryIO, length: int) -> None:
    """Shorten a log to what it was at a snapshot; a log that is shorter than that isn't its own."""
    size = file.seek(0, os.SEEK_END)
    if size < length:
        raise SnapshotError(
            f"{file.name}: {size} bytes, but {length} when the snapshot was taken: put the old file back"
        )
    with safe_files.naming(file.name, "written", StorageError):
        file.truncate(length)
        file.seek(length)


def _dump(record: Record) -> str:
    return json.dumps(record, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    """Tensors, arrays and their scalars as lists and numbers; sets sorted; anything else as text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return sorted(value) if isinstance(value, set | frozenset) else str(value)

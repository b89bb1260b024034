"""How much memory the files of a data set may take, so that a small file can't unpack to more than there is.

The setting is no key of an experiment: whoever sends one along with a run's folder would set it as well.
"""

import io
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from potluck.core.errors import ConfigError, DataError
from potluck.core.room import free_memory
from potluck.core.units import size

if TYPE_CHECKING:
    from typing_extensions import Buffer

SETTING = "POTLUCK_DATA_GB"
_SHARE = 0.5  # of what is free: rows become numbers of 32 bits, beside what was read
_BLOCK = 1 << 20


class Stream(Protocol):
    """What bytes can be read from."""

    def read(self, size: int = -1, /) -> bytes: ...


class Allowance:
    """Memory for the files of one set, of which each takes some; `times`: what a byte becomes when read."""

    def __init__(self, path: Path, times: int = 1) -> None:
        self.path = path
        self.most = self.left = find_most() // times

    def take(self, count: int) -> None:
        """Refuse what doesn't fit, before it is read."""
        self.left -= count
        if self.left < 0:
            raise DataError(
                f"{self.path}: unpacks to more than {size(self.most)}: it would take over half of the free "
                f"memory, or more than ${SETTING} allows; if it is meant to, set {SETTING}, in gigabytes"
            )

    def read(self, stream: Stream, most: float = math.inf) -> bytes:
        """All that a stream has, or its first bytes; how much that is shows only as it is unpacked."""
        found = io.BytesIO()  # doesn't copy what it is asked for at the end
        while block := stream.read(int(min(_BLOCK, most - found.tell()))):
            self.take(len(block))
            found.write(block)
        return found.getvalue()


class AllowedStream(io.RawIOBase):
    """A stream that is read no further than is allowed."""

    def __init__(self, stream: Stream, allowance: Allowance) -> None:
        self.stream, self.allowance = stream, allowance

    def readable(self) -> bool:
        return True

    def readinto(self, into: "Buffer", /) -> int:
        view = memoryview(into).cast("B")
        block = self.stream.read(len(view))
        self.allowance.take(len(block))
        view[: len(block)] = block
        return len(block)


def find_most() -> int:
    """Bytes that the files of a set may take: $POTLUCK_DATA_GB, else half of the memory that is free."""
    told = os.environ.get(SETTING, "")
    if not told:
        return int(_SHARE * free_memory())
    try:
        gigabytes = float(told)
    except ValueError:
        gigabytes = math.nan
    if not 0 < gigabytes < math.inf:
        raise ConfigError(f"${SETTING} = {told!r}: must be a number of gigabytes above 0, such as 16")
    return int(gigabytes * 1e9)

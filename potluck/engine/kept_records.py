"""Records of a run without a folder: the last ones in memory, those before them in a file without a name.

Some rules note much: 30 records a round of ShuffleFL are 7 kB, for as long as it runs. Only this process
can open the file, so what is read from it is what was written.
"""

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from potluck.core.records import Record

MOST = 5_000  # records in memory


class KeptRecords:
    """A list that grows at its end, mostly on disk."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.recent = list(records)
        self.file: BinaryIO | None = None
        self.blocks: list[int] = []  # how many records each has

    def __len__(self) -> int:
        return sum(self.blocks) + len(self.recent)

    def __iter__(self) -> Iterator[Record]:
        if self.file is not None:
            self.file.seek(0)
            for _ in self.blocks:
                block: list[Record] = pickle.load(self.file)
                yield from block
        yield from self.recent

    def append(self, record: Record) -> None:
        self.recent.append(record)
        if len(self.recent) >= MOST:
            if self.file is None:
                self.file = tempfile.TemporaryFile()  # noqa: SIM115
            self.file.seek(0, 2)
            pickle.dump(self.recent, self.file, pickle.HIGHEST_PROTOCOL)
            self.blocks.append(len(self.recent))
            self.recent = []

    def cut(self, length: int) -> None:
        """Forget all after so many."""
        self.recent = list(self)[:length]
        self.file, self.blocks = None, []

"""A table of evaluations, log/evaluations.csv: a row each, for spreadsheets and pandas."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from potluck.core import safe_files
from potluck.core.errors import StorageError
from potluck.experiment.run_events import Callback, Evaluated, Started
from potluck.experiment.sinks.log_folder import LOG, make_log_folder

NAME = f"{LOG}/evaluations.csv"
_FIRST = ("evaluation", "round", "seconds")


class CsvLog(Callback):
    """Begins the file anew at every start, with all that was before; a later new column does so too."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.columns = list(_FIRST)
        self.rows: list[dict[str, float]] = []

    def on_start(self, event: Started) -> None:
        make_log_folder(self.root)
        self.rows = [_make_row(each) for each in event.history]
        self._write_all()

    def on_evaluate(self, event: Evaluated) -> None:
        row = _make_row(event)
        self.rows.append(row)
        if not row.keys() <= set(self.columns):
            self._write_all()
            return
        with (
            safe_files.naming(self.root / NAME, "written", StorageError),
            safe_files.open_file(self.root, NAME, "ab") as file,
        ):
            file.write(self._dump([row]))

    def _write_all(self) -> None:
        names = sorted({name for row in self.rows for name in row} - set(_FIRST))
        self.columns = [*_FIRST, *names]
        safe_files.write_file(self.root, NAME, _dump([self.columns]), self._dump(self.rows))

    def _dump(self, rows: Iterable[dict[str, float]]) -> bytes:
        return _dump([row.get(column, "") for column in self.columns] for row in rows)


def _make_row(event: Evaluated) -> dict[str, float]:
    return {"evaluation": event.number, "round": event.round, "seconds": event.time, **event.numbers}


def _dump(lines: Iterable[Sequence[str | float]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue().encode()

"""Reports of what is watched: the file that is there, or drawn when somebody asks. Nothing is written."""

import threading
from pathlib import Path

from potluck.core import safe_files
from potluck.experiment import folder
from potluck.report.gather import gather
from potluck.report.page import render
from potluck.simulate.run_state import RECORDS
from potluck.watch.board import Board

KEPT = 4  # pages


class Reports:
    """One is drawn at a time."""

    def __init__(self, board: Board) -> None:
        self.board, self.lock = board, threading.Lock()
        self.drawn: dict[tuple[str, float], bytes] = {}  # by key and the age of what it is about

    def find(self, key: str) -> bytes | None:
        """The page about a group or a run; None if nothing is called that."""
        places = self.board.find(key)
        if not places:
            return None
        age = max((_find_age(log) for place in places for log in place.rglob(RECORDS)), default=0.0)
        if len(places) == 1 and _find_age(places[0] / folder.REPORT) > age:
            return safe_files.read_file(places[0], folder.REPORT)
        with self.lock:
            if (key, age) not in self.drawn:
                page = render(gather(places)).encode()
                while len(self.drawn) >= KEPT:
                    del self.drawn[next(iter(self.drawn))]
                self.drawn[key, age] = page
            return self.drawn[key, age]


def _find_age(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0

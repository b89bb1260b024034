"""What the page shows now: looked up again and again, told to browsers where it has changed."""

import hashlib
import json
import threading
import time
from pathlib import Path
from typing import NamedTuple

from potluck.core.codec import Json
from potluck.core.errors import PotluckError
from potluck.watch.finding import Found, find_below
from potluck.watch.gathering import Group, gather_live
from potluck.watch.live_run import WRONG, LiveRun
from potluck.watch.standing import clean, tell_group, tell_run

PAUSE = 0.5  # seconds between two looks
SEARCH = 2.0  # seconds between two searches for new runs, at least


class Entry(NamedTuple):
    """One thing on the page, as JSON, and when it last changed."""

    version: int
    text: str


class Board:
    """Follows a folder. `look` is called by one thread alone; whoever serves the page waits for `changes`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs: dict[Path, LiveRun] = {}
        self.groups: dict[str, Group] = {}
        self.entries: dict[str, Entry] = {}
        self.version = 0
        self.closed = False
        self._ages: dict[Path, int] = {}
        self._known: Found | None = None
        self._spoiled: dict[Path, str] = {}  # runs whose experiment can't be read
        self._trouble: list[str] = []  # what the last look failed at
        self._searched = float("-inf")
        self._news = threading.Condition()

    # ------------------------------------------------------------------------------------- one thread looks

    def follow(self, ended: threading.Event) -> None:
        """Look until told to end, and once more then."""
        try:
            while not ended.is_set():
                began = time.monotonic()
                self.look()
                ended.wait(max(PAUSE, 3 * (time.monotonic() - began)))  # a fourth of one core at most
            self._searched = float("-inf")
            self.look()
            self.look()  # who ended just now is believed at the second one
        finally:  # also if a mistake of ours ends it: browsers are told that nothing more comes
            with self._news:
                self.closed = True
                self._news.notify_all()

    def look(self) -> None:
        """Read what is new below the folder; what makes no sense at all is said, and looked at again."""
        try:
            self._look()
            self._trouble = []
        except WRONG as error:
            self._trouble = [" ".join(str(error).split())]
            self._searched = float("-inf")
            self._publish({"page": self._tell_page()})

    def _look(self) -> None:
        now, fresh = time.monotonic(), False
        if now - self._searched >= SEARCH:
            began = time.monotonic()
            fresh = self._search()
            self._searched = time.monotonic() + 10 * (time.monotonic() - began)
        changed = {path for path, run in self.runs.items() if run.look()}
        if fresh:
            found = self._known or Found({}, {}, False)
            self.groups = {f"g{_identify(group.key)}": group for group in gather_live(found, self.runs)}
        self._tell(changed, fresh)

    def _search(self) -> bool:
        """Whether runs have come or gone."""
        found = find_below(self.root)
        ages = {**found.runs, **found.comparisons}
        if ages == self._ages and self._known is not None:
            return False
        for path in [path for path in self.runs if ages.get(path) != self._ages.get(path)]:
            del self.runs[path]  # gone, or another one
        self._spoiled = {}
        for path in found.runs:
            if path not in self.runs:
                try:
                    self.runs[path] = LiveRun(path)
                except (PotluckError, OSError) as error:
                    self._spoiled[path] = " ".join(str(error).split())
        self._ages, self._known = ages, found
        return True

    def _tell(self, changed: set[Path], fresh: bool) -> None:
        """Make what has changed known."""
        told: dict[str, Json] = {}
        for key, group in self.groups.items():
            places = {run.path for run in group.runs}
            if not fresh and not places & changed:
                continue
            for run, arm in zip(group.runs, group.arms, strict=True):
                if fresh or run.path in changed:
                    told[identify_run(run.path)] = _tell_run(run, arm, group.names.index(arm))
            told[key] = tell_group(group, [identify_run(run.path) for run in group.runs], self.root)
        told["page"] = self._tell_page()
        self._publish(told)

    def _tell_page(self) -> Json:
        return {
            "root": str(self.root),
            "there": self.root.is_dir(),
            "groups": [*self._order()],
            "spoiled": [*self._spoiled.values(), *self._trouble],
            "left_out": self._known is not None and self._known.left_out,
        }

    def _publish(self, told: dict[str, Json]) -> None:
        alive = {*self.groups, *(identify_run(path) for path in self.runs), "page"}
        with self._news:
            for key in [key for key in self.entries if key not in alive]:
                del self.entries[key]
            for key, value in told.items():
                text = json.dumps(clean(value), separators=(",", ":"), allow_nan=False)
                if key not in self.entries or self.entries[key].text != text:
                    self.version += 1
                    self.entries[key] = Entry(self.version, text)
            self._news.notify_all()

    def _order(self) -> list[str]:
        """What was begun last is first."""
        ages = {key: max((self._ages.get(run.path, 0) for run in group.runs), default=0)
                for key, group in self.groups.items()}  # fmt: skip
        return sorted(ages, key=lambda key: -ages[key])

    # -------------------------------------------------------------------------------------- many are told

    def changes(self, since: int, patience: float) -> tuple[int, dict[str, str], bool]:
        """What has changed since a version, and whether nothing more will; waits for something to change."""
        with self._news:
            self._news.wait_for(lambda: self.version > since or self.closed, patience)
            news = {key: entry.text for key, entry in self.entries.items() if entry.version > since}
            return self.version, news, self.closed

    def find(self, key: str) -> list[Path]:
        """The folders that a report on a group or on one run is about; none if nothing is called that."""
        group = self.groups.get(key)
        if group is None:
            return [path for path in [*self.runs] if identify_run(path) == key]
        return [group.path] if group.experiment.compare else [run.path for run in group.runs]


def _tell_run(run: LiveRun, arm: str, colour: int) -> Json:
    try:
        return tell_run(run, arm, colour)
    except WRONG as error:
        run.spoil(error)
        return tell_run(run, arm, colour)


def identify_run(path: Path) -> str:
    return f"r{_identify(str(path))}"


def _identify(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]

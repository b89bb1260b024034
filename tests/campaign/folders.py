"""Damaged run folders: they work or are refused in one line, and nothing outside of them is touched."""

import functools
import json
import os
import random
import resource
import shutil
import tempfile
from pathlib import Path

from campaign import crash_points
from campaign._damage import KINDS, list_files
from campaign._potluck import call, compare, read_outcome

TITLE = "damaged run folders under show, list, report and resume"
COUNT, QUICK = 600, 15
BASES = ("unfinished", "finished", "compared", "unfinished", "half compared")
ROOM = 2 << 30  # bytes that a command may take for a folder of a few kilobytes
TWO = ["fedavg", "scaffold"]


@functools.cache
def make_bases():
    """Folders to be damaged, and what the run comes to that nobody disturbs."""
    place = Path(tempfile.mkdtemp(prefix="bases-"))
    (place / "it.toml").write_text(crash_points.EXPERIMENT)
    name = "scaffold"
    good("run", place / "it.toml", "--algorithm", name, "--out", place / "finished", "-q")
    half = crash_points.straight(name, crash_points.End)[1] * 2 // 3
    crash_points.go(name, place, crash_points.End(place, half))
    (place / "run").rename(place / "unfinished")
    both = ("--algorithms", ",".join(TWO), "--seeds", "1", "--jobs", "1")
    good("compare", place / "it.toml", *both, "--out", place / "compared", "-q")
    shutil.copytree(place / "compared", place / "half compared")
    shutil.rmtree(place / "half compared" / "scaffold-1")
    shutil.copytree(place / "unfinished", place / "half compared" / "scaffold-1")
    return place, read_outcome(place / "finished")


def good(*arguments):
    said = call(*arguments)
    assert said.code == 0, said
    return said


def look(place):
    """All that lies in a folder, with its content."""
    return {
        str(path.relative_to(place)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in place.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def take(*arguments):
    """A command that works, or is refused in one line."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (int(Path("/proc/self/statm").read_text().split()[0]) * 4096 + ROOM, before[1])
    )
    try:
        said = call(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert said.code in (0, 1, 2), said
    if said.code:
        lines = said.err.splitlines()
        assert len(lines) == 1, said
        assert lines[0].startswith("potluck: "), said
        assert len(lines[0]) < 2000, said
    assert "\x1b" not in said.out + said.err, said
    return said


def choose_file(it, rng):
    """Any, but records more often than others: they are the longest that is read."""
    files = list_files(it)
    logs = [path for path in files if path.name in ("records.jsonl", "keep.log")]
    return rng.choice(logs if rng.random() < 0.3 else files)


def attempt(number, folder):
    rng = random.Random(number)
    bases, wanted = make_bases()
    kind, base = KINDS[number % len(KINDS)], BASES[number // len(KINDS) % len(BASES)]
    it, healthy, outside = folder / "it", folder / "healthy", folder / "outside"
    shutil.copytree(bases / base, it)
    shutil.copytree(bases / "finished", healthy)
    outside.mkdir()
    (outside / "mine").write_text("mine")
    kind(it, choose_file(it, rng), rng)
    before = look(outside), look(healthy)
    os.chdir(folder)
    for command in (("show", "it"), ("show", "it", "--json"), ("report", "it")):
        take(*command)
    listed = take("list", ".", "--json")
    assert listed.code == 0, listed
    assert "healthy" in [line["folder"] for line in json.loads(listed.out)], listed
    resumed = take("resume", "it", "--quiet", *(("--jobs", "1") if "compared" in base else ()))
    if resumed.code == 0:
        check(it, base, kind, wanted)
        take("report", "it")
    assert (look(outside), look(healthy)) == before, "something outside was touched"


def check(it, base, kind, wanted):
    """What a resumed run came to is what it comes to undisturbed; of the summary's names we don't know."""
    place = {"unfinished": it, "half compared": it / "scaffold-1"}.get(base)
    if place is None or not (place / "summary.json").is_file():
        return
    found = read_outcome(place)
    for part in (found, wanted):
        part["summary"] = {
            key: value for key, value in part["summary"].items() if key not in ("name", "target")
        }
    compare(found, wanted)

"""Ends at every call that makes a file lasting, and disks that are full at every write: a run goes on."""

import builtins
import errno
import functools
import io
import json
import os
import shutil
import tempfile
from pathlib import Path

from interrupted import ended

from campaign._potluck import compare, fork, read_outcome

TITLE = "an end before or after every fsync, rename and unlink; a full disk at every write; then resumed"
EXPERIMENT = """
name = "small"
seed = 1
[data]
source = "synthetic"
rows = 300
dimension = 6
classes = 3
clients = 8
[model]
name = "linear"
[stop]
rounds = 2
[evaluate]
rounds = 1
[run]
executor = "loop"
snapshot_every = 1e-9
[algorithms.fedavg]
clients = 2
[algorithms.scaffold]
clients = 2
[algorithms.fedasync]
clients = 2
"""  # a snapshot after every event
WHO = ("fedavg", "scaffold", "fedasync")  # rounds, memories on devices, no rounds
CALLS = ("fsync", "replace", "rename", "link", "unlink")
WAYS = ("before", "after", "tails lost")  # the last: what no fsync has seen by then is gone too
POINTS = 810  # ends: room for 90 calls of each of WHO
COUNT, QUICK = POINTS + 240, 12
DIED = 77
BUFFERED = dict.fromkeys(("xb", "wb", "ab"), io.BufferedWriter) | {"a+b": io.BufferedRandom}


class Trouble:
    """What befalls a child; how many calls it has made by its end is written to a file."""

    def __init__(self, folder, fatal=None):
        self.file, self.fatal, self.calls, self.synced = folder / "calls", fatal, 0, {}

    def install(self):
        """In the child, before it does anything."""
        leave = os._exit
        os._exit = lambda code: (self.note(), leave(code))

    def note(self):
        self.file.write_text(json.dumps({"calls": self.calls, "synced": self.synced}))

    def read(self):
        return json.loads(self.file.read_text())


class End(Trouble):
    """At the n-th call that makes something lasting, the process is gone: before it, or after."""

    def __init__(self, folder, fatal=None, way="before"):
        super().__init__(folder, fatal)
        self.way = way

    def install(self):
        super().install()
        for name in CALLS:
            setattr(os, name, functools.partial(self.call, name, getattr(os, name)))

    def call(self, name, real, *args, **named):
        self.calls += 1
        if self.calls == self.fatal and self.way == "before":
            os._exit(DIED)
        try:
            return real(*args, **named)
        finally:
            if name == "fsync":
                found = os.fstat(args[0])
                self.synced[found.st_ino] = found.st_size
            if self.calls == self.fatal:
                os._exit(DIED)


class FullDisk(Trouble):
    """At the n-th write or fsync, once or from then on, there is no room; half of what is written fits."""

    def __init__(self, folder, fatal=None, once=False):
        super().__init__(folder, fatal)
        self.once = once

    def install(self):
        super().install()
        disk, real_open, real_sync = self, builtins.open, os.fsync

        class Raw(io.FileIO):
            def write(self, data):
                if disk.is_full():
                    super().write(bytes(data)[: len(data) // 2])
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return super().write(data)

        def opened(file, mode="r", *args, opener=None, **named):
            if mode not in BUFFERED or args or named:
                return real_open(file, mode, *args, opener=opener, **named)
            return BUFFERED[mode](Raw(file, mode, opener=opener))

        def sync(file):
            if disk.is_full():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real_sync(file)

        builtins.open, os.fsync = opened, sync

    def is_full(self):
        self.calls += 1
        return self.calls == self.fatal or (
            self.fatal is not None and self.calls > self.fatal and not self.once
        )


def go(name, folder, trouble=None):
    """Run, or go on with, the run of a folder in a child with some trouble; exit code and words."""
    run, said = folder / "run", folder / "said"
    (folder / "it.toml").write_text(EXPERIMENT)
    if (run / "experiment.toml").exists():
        command = ["resume", run]
    else:
        command = ["run", folder / "it.toml", "--algorithm", name, "--out", run]
    code = ended(fork(said, *command, "--quiet", first=trouble.install if trouble else lambda: None))
    return code, said.read_text()


@functools.cache
def straight(name, kind):
    """What a run came to that nobody disturbed, and how many calls of this kind it made."""
    folder = Path(tempfile.mkdtemp())
    try:
        trouble = kind(folder)
        code, said = go(name, folder, trouble)
        assert code == 0, said
        return read_outcome(folder / "run"), trouble.read()["calls"]
    finally:
        shutil.rmtree(folder)


def lose_tails(folder, synced, fill):
    """What was never synced is gone, or zeros lie in its place, as after a cut of the power."""
    for path in (folder / "run").rglob("*"):
        length = synced.get(str(path.lstat().st_ino))
        if path.is_file() and length is not None and path.stat().st_size > length:
            size = path.stat().st_size
            os.truncate(path, length)
            if fill:
                os.truncate(path, size)


def find_partial(folder):
    return [path.name for path in folder.rglob("*") if path.name.endswith(".partial")]


def end_at(number, folder):
    name, point = WHO[number % len(WHO)], number // len(WHO)
    wanted, calls = straight(name, End)
    assert calls * len(WAYS) <= POINTS // len(WHO), f"{name} makes {calls} calls: raise POINTS"
    trouble = End(folder, point // len(WAYS) % calls + 1, WAYS[point % len(WAYS)])
    code, said = go(name, folder, trouble)
    assert code == DIED, f"ended with {code}: {said}"
    if trouble.way == "tails lost":
        lose_tails(folder, trouble.read()["synced"], fill=point % 2)
    code, said = go(name, folder)
    assert code == 0, said
    compare(read_outcome(folder / "run"), wanted)


def fill_at(number, folder):
    name, point = WHO[number % len(WHO)], number // len(WHO)
    wanted, calls = straight(name, FullDisk)
    assert calls <= (COUNT - POINTS) // len(WHO), f"{name} writes {calls} times: raise COUNT"
    code, said = go(name, folder, FullDisk(folder, point % calls + 1, once=point % 2))
    assert code == 2, f"ended with {code}: {said}"
    assert said.count("\n") == 1, said
    assert "(No space left on device)" in said, said
    assert find_partial(folder) == [], said
    begun = (folder / "run" / "experiment.toml").exists()
    assert ("go on with: potluck resume" in said) == begun, said
    code, said = go(name, folder)
    assert code == 0, said
    compare(read_outcome(folder / "run"), wanted)


def attempt(number, folder):
    if number < POINTS:
        end_at(number, folder)
    else:
        fill_at(number - POINTS, folder)

"""The command line in this process, or in a fork of it: like a fresh process, but at once."""

import contextlib
import io
import json
import os
import signal
import sys
import traceback
from typing import NamedTuple

from potluck.cli import main


class Said(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


def call(*arguments):
    """A command in this process; what isn't an orderly end is raised."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(each) for each in arguments])
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return Said(code, out.getvalue(), err.getvalue())


def fork(file, *arguments, first=lambda: None):
    """The process id of a child that does `first` and then a command, and writes what it says to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        said = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        first()
        main([str(each) for each in arguments])
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def read_outcome(run):
    """All of a finished run that must be the same again: models, records and the rest but for real time."""
    summary = json.loads((run / "summary.json").read_text())
    return {
        "models": {path.name: path.read_bytes() for path in sorted((run / "models").iterdir())},
        "records": (run / "records.jsonl").read_bytes(),
        "devices": (run / "devices.json").read_bytes(),
        "summary": {key: v for key, v in summary.items() if key not in ("wall_seconds", "finished")},
    }


def compare(found, wanted):
    """Name what differs."""
    different = [part for part in wanted if found[part] != wanted[part]]
    assert not different, f"{', '.join(different)} differ from the run that nobody disturbed"

"""The command line: `potluck run`, `compare`, `tune`, `study` and others; `potluck --help` lists them."""

import sys
from collections.abc import Sequence

from potluck.core.errors import AwaitingError, PotluckError, RunError
from potluck.core.plain_text import show_controls

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """The console entry point; errors print one line.

    Exit code 2, or 1 for a run or code that failed, or 3 where other parts must be computed first.
    """
    try:
        from potluck.cli.commands import app  # slow enough for somebody to change her mind

        app(None if arguments is None else list(arguments), prog_name="potluck")
    except (PotluckError, OSError) as error:
        trace = error.trace if isinstance(error, PotluckError) else ""
        told = str(error)
        if isinstance(error, OSError) and error.filename is not None:
            told = f"{error.filename}: {error.strerror}; see to it that it can be read and written"
        print(show_controls(f"{trace}potluck: {' '.join(told.split())}"), file=sys.stderr)
        failed = isinstance(error, RunError) or trace
        sys.exit(1 if failed else 3 if isinstance(error, AwaitingError) else 2)
    except KeyboardInterrupt:
        print("potluck: interrupted", file=sys.stderr)
        sys.exit(130)

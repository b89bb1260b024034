"""What can go wrong, as one small tree.

PotluckError            anything a user can mend; the command line prints one line and exits with 2
├── ConfigError         a key of an experiment: names the key, the value and the fix
├── DataError           a data source or a partition that can't be made
├── ModelError          a model that doesn't fit the data or the engine
├── DecodeError         bytes that are no value, or not one that may be built
├── SnapshotError       a run folder that can't be resumed or read
├── StorageError        a file that can't be written: the disk is full, say
├── AwaitingError       what other parts of a command have to compute first; the command line exits with 3
├── ClaimError          a run that another machine has taken over: this process writes nothing more of it
├── RunError            a run that began and can't go on; the command line exits with 1
│   ├── StalledError    every lane is parked and nothing is under way
│   └── DivergedError   what is merged or served is NaN or infinite
└── JobError            a job that broke its contract (a bug in the job, not in the data)
"""

import reprlib
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class PotluckError(Exception):
    """Anything that a user can mend, in one line; or code that failed, shown with its traceback."""

    trace: str = ""  # of the code that failed, where no setting is to blame

    def retell(self, text: str) -> Self:
        """The same in other words."""
        again = type(self)(text)
        again.trace = self.trace
        return again

    def blame(self, cause: Exception, given: tuple[type[Exception], ...] = ()) -> Self:
        """Show the traceback of its cause, unless that is what code raises for what it was `given`."""
        if isinstance(cause, PotluckError):
            self.trace = cause.trace
        elif not isinstance(cause, given) or isinstance(cause, RecursionError | NotImplementedError):
            self.trace = "".join(traceback.format_exception(cause))
        return self


class ConfigError(PotluckError):
    """A key, its value and what to write instead."""


class DataError(PotluckError):
    """Data that is missing, damaged or can't be divided as asked."""


class ModelError(PotluckError):
    """A model that doesn't fit its data or can't be trained by the engine."""


class DecodeError(PotluckError):
    """Bytes that are damaged, name what isn't known or allowed, or ask for more than they may."""


class SnapshotError(PotluckError):
    """A run folder that can't be resumed or read."""


class StorageError(PotluckError):
    """A file that can't be written; with room for it, a run goes on where it was."""


class AwaitingError(PotluckError):
    """What is needed, and other processes compute."""


class ClaimError(PotluckError):
    """A run that this process computed and that is somebody else's now."""


class RunError(PotluckError):
    """A run that began and can't go on: what it was given is good, but nothing comes of it."""


class StalledError(RunError):
    """Lanes wait, and nothing is under way that could wake them."""


class DivergedError(RunError):
    """Numbers that are NaN or infinite, where answers were merged or models are served."""


class JobError(PotluckError):
    """A job whose result is not what its cost promised."""


def nearest(name: str, known: "list[str] | tuple[str, ...]") -> str:
    """The end of an error message about a `name`: the closest of those `known`, or all of them.

    A key without its table, such as `lr`, is meant to be the first that there is, such as `train.lr`.
    """
    import difflib

    close = [key for key in known if key.endswith(f".{name}")] or difflib.get_close_matches(
        name, known, n=1, cutoff=0.6
    )
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"


def nearest_or_own(name: str, known: "list[str] | tuple[str, ...]") -> str:
    """The same of names that users may add to: one that is like none may be theirs."""
    hint = nearest(name, known)
    return hint if hint.startswith("did") else f"{hint}; one of your own needs --code FILE, or its package"


class _Short(reprlib.Repr):
    """Values as they are written, in their beginnings where they are long."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 120
        self.maxlist = self.maxtuple = self.maxdict = 12

    def repr_int(self, x: int, level: int) -> str:
        if abs(x) < 10**40:
            return repr(x)
        return (
            f"{'-' * (x < 0)}1e{int(x.bit_length() * 0.30103)}"  # about: thousands of digits can't be shown
        )


show_short: Callable[[object], str] = _Short().repr


def require(good: bool, key: str, value: object, fix: str) -> None:
    """Refuse a setting that isn't `good`: names its `key`, its `value` and what to write instead (`fix`)."""
    if not good:
        raise ConfigError(f"{key} = {show_short(value)}: {fix}")


def call_named(what: str, make: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call what somebody registered; if it fails, say what it is and where in its file."""
    try:
        return make(*args, **kwargs)
    except PotluckError:
        raise
    except MemoryError as error:
        raise PotluckError(f"{what}: takes more memory than there is") from error
    except Exception as error:  # code of others may fail in any way: it is named, and its traceback shown
        _, *frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename == frames[0].filename]
        where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "  # its text is for users
        raise ConfigError(f"{what}: {kind}{error}{where}").blame(error, (ValueError, OSError)) from error


@contextmanager
def error_context(where: str, keys: Collection[str] | None = None) -> Iterator[None]:
    """Say where an error arose.

    `where` is a file, which every error is prefixed with once. Or, with `keys`, it is the path of a table:
    a ConfigError that names one of its keys then names the whole path, and others pass as they are.
    """
    try:
        yield
    except (StorageError, ClaimError):  # it names its file, and no key is to blame
        raise
    except PotluckError as error:
        text = str(error)
        if keys is None:
            if text.startswith(f"{where}: "):
                raise
            raise error.retell(f"{where}: {text}") from error.__cause__
        if not isinstance(error, ConfigError) or text.partition(" = ")[0].partition(".")[0] not in keys:
            raise
        raise error.retell(f"{where}.{text}") from error.__cause__

"""Extreme values for every setting that there is, and settings files that were damaged.

A setting is accepted, and then its experiment is built and begun within a bound of memory and time (nothing
is trained); or it is refused in one line, which names it. The machine is said to have little memory, so that
what is counted before memory is taken is what bounds it.
"""

import contextlib
import random
import resource
import signal
from pathlib import Path
from unittest import mock

from campaign._setting_space import EXTREMES, list_settings, make
from potluck.core import room
from potluck.core.errors import PotluckError
from potluck.execute.plan import ExecutionPlan
from potluck.experiment import Experiment
from potluck.experiment.prepare import prepare

TITLE = "every typed setting with every extreme value, and damaged settings files: built, or one line"
EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.toml"))
FILES = 1000
COUNT, QUICK = FILES + len(list_settings()), 40
FREE = 512 << 20  # bytes that the machine is said to have
MORE = 2 << 30  # that may be taken in truth, beside what the process has already
SECONDS = 60.0  # of one experiment, on a machine that does other things too
NEVER = (
    "huge",
    "minus huge",
    "nan",
    "infinite",
    "63 bits",
    "400 digits",
    "long",
    "half a character",
    "bytes",
)
LONGEST = 1000  # characters of a line
TOKENS = (
    *("-1", "0", "1e300", "-1e300", "1e-300", "nan", "inf", "-inf", "true", '""', "[]", "{}", "2147483648"),
    *("9223372036854775808", "9" * 5000, '"\\ud800"', '"' + "x" * 100_000 + '"', "[" * 5000, "[" * 300),
    *(".".join(["a"] * 2000) + " = 1", "{a = " * 400, "1979-05-27", "0x7fffffffffffffff", "'''", "\ufeff"),
)


def attempt(number: int, folder: Path) -> None:
    if number < FILES:
        _try_file(number, folder)
    else:
        setting = list_settings()[number - FILES]
        for what, value in EXTREMES.items():
            line = _build(lambda v=value: Experiment(**make(setting, v)))
            assert line is not None or what not in NEVER, f"{setting.key}, {what}: accepted"
            named = line is None or setting.name in line or _is_whole_table(setting)
            assert named, f"{setting.key}, {what}: the line doesn't name it: {line}"


def _try_file(number: int, folder: Path) -> None:
    path = folder / "experiment.toml"
    path.write_bytes(_damage(EXAMPLES[number % len(EXAMPLES)].read_bytes(), random.Random(number)))
    _build(lambda: Experiment.from_file(path))


def _build(read) -> str | None:
    """Why an experiment was refused; None if it can be run."""
    with _bounded():
        try:
            simulation = prepare(read()).start(ExecutionPlan("loop"))
            with contextlib.closing(simulation):
                simulation.start(evaluate=False)
            return None
        except PotluckError as error:
            line = str(error)
    if not line.isprintable() or len(line) > LONGEST:
        raise AssertionError(f"not one line: {line!r:.2000}")
    return line


def _is_whole_table(setting) -> bool:
    """Whether what is wrong of a table's value is one of its own keys."""
    return "." not in setting.key


@contextlib.contextmanager
def _bounded():
    """Within, little memory is said to be free, not much more can be taken, and time is short."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + MORE, hard))
    try:
        with mock.patch.object(room, "free_memory", return_value=FREE):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _end(number, frame):
    raise TimeoutError(f"no end after {SECONDS:g} s")


def _damage(content: bytes, chance: random.Random) -> bytes:
    """A file with one to three flaws, of bytes, of lines or of values."""
    for _ in range(chance.randint(1, 3)):
        content = chance.choice((_damage_bytes, _damage_lines, _damage_value, _damage_value))(content, chance)
    return content


def _damage_bytes(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    way = chance.randrange(4)
    if way == 0:
        return content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]
    if way == 1:
        return content[:at] + bytes([chance.randrange(256)]) + content[at:]
    return content[:at] if way == 2 else content[:at] + content[at + chance.randrange(1, 20) :]


def _damage_lines(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True) or [b""]
    i, j = chance.randrange(len(lines)), chance.randrange(len(lines))
    way = chance.randrange(3)
    if way == 0:
        lines[i], lines[j] = lines[j], lines[i]
    elif way == 1:
        lines.insert(j, lines[i])
    else:
        del lines[i]
    return b"".join(lines)


def _damage_value(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if b"=" in line]
    if not places:
        return content
    i, token = chance.choice(places), chance.choice(TOKENS).encode()
    lines[i] = lines[i].partition(b"=")[0] + b"= " + token + b"\n"
    return b"".join(lines)

"""How much memory can be had here, and whether what a setting asks for fits, before any of it is taken."""

from pathlib import Path

from potluck.core.errors import ConfigError, show_short
from potluck.core.units import size

UNKNOWN = 2 << 30  # bytes that are taken to be free where the system doesn't tell


def require_room(taken: float, key: str, value: object, fix: str) -> None:
    """Refuse a setting by which more memory would be taken than can be had."""
    if taken <= 64 << 20:  # as nearly always: nothing is read
        return
    free = free_memory()
    if taken > free:
        why = f"takes about {size(taken)} of memory, and {size(free)} can be had here"
        raise ConfigError(f"{key} = {show_short(value)}: {why}; {fix}")


def free_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can be had now: what the system has available, within the limits of this process."""
    found = [_find_available(proc / "meminfo"), *_find_limits(proc / "self" / "cgroup", cgroup)]
    known = [size for size in found if size is not None]
    return max(0, min(known)) if known else UNKNOWN


def _find_available(meminfo: Path) -> int | None:
    """MemAvailable; None where there is no such file."""
    return None if (kilobytes := _read_table(meminfo).get("MemAvailable:")) is None else 1024 * kilobytes


def _find_limits(membership: Path, root: Path) -> list[int | None]:
    """What this process's control groups, and those above them, leave of their memory limits."""
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return []
    left: list[int | None] = []
    for _, kinds, name in (line for line in lines if len(line) == 3):
        if kinds == "":  # version 2
            base, limit, used, cached = root, "memory.max", "memory.current", "inactive_file"
        elif "memory" in kinds.split(","):
            base, limit, used = root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cached = "total_inactive_file"
        else:
            continue
        place = base / name.strip("/")
        for at in (place, *(p for p in place.parents if p.is_relative_to(base))):
            most, taken = _read_number(at / limit), _read_number(at / used)
            if most is not None and taken is not None:  # files that are only cached make room when asked
                left.append(most - taken + _read_table(at / "memory.stat").get(cached, 0))
    return left


def _read_number(path: Path) -> int | None:
    """The number in a file; None if there is none, as in a limit of `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _read_table(path: Path) -> dict[str, int]:
    """Names and numbers, line by line."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except (OSError, ValueError):
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}

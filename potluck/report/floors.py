"""Who stands above whom in a run, and by which rules: of a stack of layers, or of any algorithm of tiers."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

from potluck.algorithms import canonical
from potluck.core.codec import Json
from potluck.core.errors import ConfigError
from potluck.core.units import plural
from potluck.experiment import Run
from potluck.experiment.device_summary import DeviceSummary
from potluck.layers import CLOUD, Level, describe_stack
from potluck.report.cohorts import name_cohort, read_memberships

DEVICES = "devices"
BELOW = ("edges", "users")  # layers between the cloud and devices, where no devices.json tells of tiers
OF_TRAINING = ("lr", "batch", "epochs", "steps")  # that are told of devices


@dataclass(frozen=True)
class Floor:
    """All who stand at one height, or what does: its name, how many there are, and what is said of it."""

    name: str
    count: int | None  # None: it isn't known
    told: str
    stands: bool = True  # between others, not just beside them
    shares: tuple[int, ...] = ()  # of cohorts: devices that would choose each, at the end


def read_levels(run: Run) -> list[Level]:
    """The rules of a run, from the cloud downward; at least the one at the cloud."""
    e = run.experiment
    try:
        name = canonical(e.algorithm)
        given = {key: value for key, value in e.algorithms.get(name, {}).items() if key != "train"}
        return describe_stack(name, given, e.layers, e.layer, e.stop.rounds)
    except ConfigError:  # of other code, which isn't at hand, or of a later version
        return [Level(CLOUD, e.algorithm, {}), *(Level(name, "", {}) for name in e.layers)]


def list_rules(run: Run) -> list[str]:
    """The algorithms that a run is built from, the base rule first."""
    return list(dict.fromkeys(level.rule for level in read_levels(run) if level.rule))


def read_floors(run: Run) -> list[Floor]:
    """Everybody from the cloud down to devices, and what serves them; empty where nobody stands between."""
    levels = {level.name: level for level in read_levels(run)}
    tiers = _count_tiers(run.devices)
    between = [level for name, level in levels.items() if name in ("cohorts", "sizes")]
    names = dict.fromkeys(
        [*(f"{tier}s" for tier in tiers if tier != CLOUD), *(name for name in BELOW if name in levels)]
    )
    below = [levels.get(name, Level(name, run.experiment.algorithm, {})) for name in names]
    if not between and not below:
        return []
    if below and below[-1].name not in levels:  # an algorithm that brings edges: `clients` is of each
        base = levels[CLOUD]
        asks = {key: value for key, value in base.settings.items() if key == "clients"}
        rest = {key: value for key, value in base.settings.items() if key != "clients"}
        levels[CLOUD], below[-1] = replace(base, settings=rest), replace(below[-1], settings=asks)
    asked = [*(level.name for level in below), DEVICES]  # by the cloud, and by each tier
    found = [Floor(CLOUD, 1, _tell_level(levels[CLOUD], asked[0]))]
    for level in between:
        floor = Floor(level.name, None, _tell_level(level, asked[0]))
        grouped = level.name == "cohorts"
        found.append(_count_cohorts(run, floor) if grouped else replace(floor, stands=False))
    for level, members in zip(below, asked[1:], strict=True):
        found.append(Floor(level.name, tiers.get(level.name[:-1]), _tell_level(level, members)))
    devices = None if run.devices is None else run.devices["devices"]
    found.append(Floor(DEVICES, devices, _tell_training(run)))
    drawn = {floor.name for floor in found}
    serves = [level for name, level in levels.items() if name not in drawn]
    told = [Floor(level.name, None, _tell_level(level) or "as by default", stands=False) for level in serves]
    return [*found, *told]


def _count_tiers(crowd: DeviceSummary | None) -> dict[str, int | None]:
    """How many there are in each tier; of the lowest only where all devices are known."""
    if crowd is None:
        return {}
    firsts = crowd["tiers"]
    found: dict[str, int | None] = {upper: firsts[lower] - firsts[upper] for upper, lower in pairwise(firsts)}
    last = list(firsts)[-1]
    members = {"user": crowd.get("user", []), "edge": crowd.get("edge", [])}.get(last, [])
    whole = len(crowd["nodes"]) == crowd["devices"]
    return found | {last: len({each for each in members if each >= 0}) or None if whole else None}


def _count_cohorts(run: Run, floor: Floor) -> Floor:
    """As devices would choose at the end."""
    at = read_memberships(run.lines)
    if not at:
        return floor
    sizes = Counter(name_cohort(name) for name in at[-1].chosen.values())
    if len(sizes) == 1:
        return replace(floor, count=1, told=f"{floor.told}; in the end there is one for all")
    shares = {name: sizes[name] for name in sorted(sizes)}
    whose = ", ".join(f"{plural(size, 'device')} in cohort {name}" for name, size in shares.items())
    return replace(
        floor, count=len(shares), shares=tuple(shares.values()), told=f"{floor.told}; in the end {whose}"
    )


def _tell_level(level: Level, members: str = "") -> str:
    """`members`: whom it asks."""
    said = [
        f"{_tell(value)} {members} a round" if key == "clients" else f"{key} = {_tell(value)}"
        for key, value in level.settings.items()
    ]
    return ": ".join(filter(None, [level.rule, ", ".join(said)]))


def _tell_training(run: Run) -> str:
    train = run.experiment.training(run.experiment.algorithm)
    found = {key: getattr(train, key) for key in OF_TRAINING}
    return ", ".join(f"{key} = {_tell(value)}" for key, value in found.items() if value is not None)


def _tell(value: Json) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_tell, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)

"""Where fleets come from, by name."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potluck.core.errors import ConfigError, nearest
from potluck.core.keys import derive, permute
from potluck.fleet.availability import Always, Availability
from potluck.fleet.generate import mix, mobile, uniform
from potluck.fleet.jitter import Jitter
from potluck.fleet.measurements import fedrac40, table, trace
from potluck.fleet.profiles import Fleet, Profiles, check_column
from potluck.fleet.validation import check, check_count, check_share, read_ends, read_number

SOURCES: dict[str, Callable[..., Profiles]] = {
    "mobile": mobile,
    "uniform": uniform,
    "mix": mix,
    "trace": trace,
    "table": table,
    "fedrac40": fedrac40,
}

_LINKS, _CLAIMS, _STRAGGLERS = 5, 6, 7  # streams of a fleet's key; 1 to 4 are of the sources


def build(
    source: str,
    n: int,
    key: int,
    users: int | None = None,
    edges: int | None = None,
    availability: Availability = Always(),
    *,
    tiers: Mapping[str, Mapping[str, float]] = {},
    links: Mapping[str, Mapping[str, Sequence[float]]] = {},
    jitter: Jitter | None = None,
    claims: Sequence[Mapping[str, Any]] = (),
    stragglers: Mapping[str, float] | None = None,
    forget: float = 0.0,
    **options: Any,
) -> Fleet:
    """A fleet by the name of its source; users and edges get even, contiguous blocks of devices.

    `claims`: lies, such as {"share": 0.1, "up": 2.0}: a tenth of the devices claim twice their rate.
    `stragglers`: such as {"share": 0.25, "slower": 10}; `forget`: see `Fleet`.
    """
    if source not in SOURCES:
        raise ConfigError(f"fleet.source = {source!r}: no such source; {nearest(source, tuple(SOURCES))}")
    known = {
        p.name: p for p in inspect.signature(SOURCES[source]).parameters.values() if p.kind is p.KEYWORD_ONLY
    }
    for name in options:
        if name not in known:
            raise ConfigError(f"fleet.{name}: {source!r} has no such option; {nearest(name, tuple(known))}")
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in options:
            raise ConfigError(f"fleet.{name} is missing: source = {source!r} needs it")
    profiles = SOURCES[source](n, key, **options)
    if stragglers is not None:
        profiles = slow_down(profiles, derive(key, _STRAGGLERS), **stragglers)
    nobody = np.full(n, -1, dtype=np.int32)
    user = nobody if users is None else _blocks("users", users, n)
    if users is None or edges is None:
        edge = nobody if edges is None else _blocks("edges", edges, n)
    else:  # by user, since the devices of a user share an edge
        check("edges", edges, edges <= users, f"at most {users}: each edge needs a user of its own")
        edge = _blocks("edges", edges, users)[user]
    near = {t: {c: read_ends(f"links.{t}.{c}", pair) for c, pair in own.items()} for t, own in links.items()}
    fleet = Fleet(
        *(profiles, profiles, availability, user, edge),
        group=nobody,
        tiers=tiers,
        links=near,
        jitter=jitter,
        key=derive(key, _LINKS),
        forget=forget,
    )
    for i, lie in enumerate(claims):
        fleet = boast(fleet, derive(key, _CLAIMS, i), **lie)
    return fleet


def slow_down(profiles: Profiles, key: int, *, share: float, slower: float) -> Profiles:
    """A copy in which a share (one at least), drawn by key, computes, sends and receives so much slower."""
    check_share("stragglers.share", share, "devices that are slow")
    fix = "give how many times longer they take, at least 1, such as 10"
    check("stragglers.slower", slower, 1 <= read_number(slower) < np.inf, fix)
    factor = np.ones(len(profiles))
    factor[permute(key, len(profiles))[: max(1, round(share * len(profiles)))]] = slower
    return replace(
        profiles, compute=profiles.compute * factor, up=profiles.up / factor, down=profiles.down / factor
    ).check()


def boast(
    fleet: Fleet,
    key: int,
    *,
    nodes: Sequence[int] | None = None,
    share: float | None = None,
    **factors: float,
) -> Fleet:
    """A copy in which these nodes, or a share (one at least) drawn by key, claim multiples of the truth."""
    if (nodes is None) == (share is None):
        raise ConfigError("fleet.claims: give nodes or share, to say who claims what isn't true")
    if share is not None:
        check_share("claims.share", share, "devices that claim so")
        nodes = permute(key, len(fleet))[: max(1, round(share * len(fleet)))].tolist()
    claims = {}
    for name, factor in factors.items():
        fix = "give a factor above 0 of what is true"
        true = getattr(fleet.true, check_column(name))
        check(f"claims.{name}", factor, 0 < read_number(factor) < np.inf, fix)
        claims[name] = true[[node for node in nodes or () if 0 <= node < len(true)]] * factor
    if not claims:
        raise ConfigError("fleet.claims: say what is claimed, such as up = 2.0: twice the true rate")
    return fleet.claim(nodes or (), **claims)


def _blocks(name: str, count: int, n: int) -> NDArray[np.int32]:
    """Which of `count` blocks each of n belongs to; sizes differ by one at most."""
    check_count(name, count)
    check(name, count, count <= n, f"at most {n}, so that none is empty")
    return (np.arange(n) * count // n).astype(np.int32)

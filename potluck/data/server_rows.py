"""What the server's own rows are made of: a share of the data, noise, or rows of another source.

The same rows are set aside whatever takes their place, so clients hold the same data in every case. Only
features are put in; labels become 0, since nobody may read them.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from potluck.core.errors import ConfigError, DataError, PotluckError, nearest
from potluck.core.keys import derive, generator, hash_all
from potluck.data.holding import stream
from potluck.data.pool import Pool
from potluck.data.sources.registry import SOURCES, load

_ORDER_KEY = derive(0, int.from_bytes(b"stock"))  # fixed: the same foreign rows in runs of different seeds


def list_stocks() -> tuple[str, ...]:
    """What the server's rows may be made of; sources that need a path have none of their own here."""
    return "data", "noise", *(name for name in SOURCES if name not in ("idx", "npz", "python"))


def stock_server(pool: Pool, what: str, key: int, root: Path | None = None) -> Pool:
    """The `pool` with the server's rows made of `what`: "data" (as they are), "noise", or a source by name.

    `key`: what noise is drawn from. `root`: the folder of the source's files.
    Noise is standard normal, as normalised values are, or made of random tokens. A source gives its rows
    beside its test set in a fixed order, over again if there are too few, normalised by themselves.
    """
    if what not in list_stocks():
        raise ConfigError(f"data.server_from = {what!r}: no such stock; {nearest(what, list_stocks())}")
    if pool.server is None:
        raise ConfigError(f"data.server_from = {what!r}: the server has no rows; set data.server")
    if what == "data":
        return pool
    count, server = int(pool.server.sum()), torch.from_numpy(pool.server)
    x, y = pool.x.clone(), pool.y.clone()
    found = (
        _noise(pool, count, stream(key, b"noise")) if what == "noise" else _foreign(pool, what, count, root)
    )
    x[server], y[server] = found.to(x.dtype), 0
    return replace(pool, x=x, y=y)


def _noise(pool: Pool, count: int, key: int) -> Tensor:
    shape, rng = (count, *pool.shape), generator(key)
    if pool.x.is_floating_point():
        return torch.from_numpy(rng.standard_normal(shape, np.float32))
    return torch.from_numpy(rng.integers(_tokens(pool), size=shape))


def _foreign(pool: Pool, source: str, count: int, root: Path | None) -> Tensor:
    try:
        other = load(source, root)
    except PotluckError as error:
        raise error.retell(f"data.server_from = {source!r}: {error}") from error.__cause__
    if other.shape != pool.shape or other.x.is_floating_point() != pool.x.is_floating_point():
        raise DataError(
            f"data.server_from = {source!r}: its rows are {_kind(other)}, but those of {pool.name} are "
            f"{_kind(pool)}; name a source whose rows are alike, or 'noise'"
        )
    if not pool.x.is_floating_point() and _tokens(other) > _tokens(pool):
        raise DataError(
            f"data.server_from = {source!r}: has {_tokens(other)} tokens, {pool.name} {_tokens(pool)}: "
            "models have no place for the others; use 'noise'"
        )
    rows = other.free
    rows = rows[np.argsort(hash_all(_ORDER_KEY, rows), kind="stable")]
    return other.x[torch.from_numpy(rows[np.arange(count) % len(rows)])]


def _tokens(pool: Pool) -> int:
    """How many there are: numbers up to the largest that clients or the server may hold."""
    return int(pool.x[torch.from_numpy(~pool.test)].max()) + 1


def _kind(pool: Pool) -> str:
    return f"{list(pool.shape)} {'values' if pool.x.is_floating_point() else 'tokens'}"

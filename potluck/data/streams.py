"""The order in which a device meets the rows that it is tested on; who reads them one by one keeps to it.

A partition's rows come sorted, which for many sources is by class: a model that adapts as it goes would
profit from that. So rows are met in an order of their own, by hash; unless the partition says that its test
rows are in order already, since a shift sets in or grows along the stream.
"""

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from potluck.core.keys import hash_all
from potluck.data.holding import Partition, Split, stream


@runtime_checkable
class Ordered(Protocol):
    """A partition that knows whether its test rows are in the order of the stream; others' are sorted."""

    @property
    def in_order(self) -> bool: ...


def order_of_stream(partition: Partition, client: int, split: Split = "test") -> NDArray[np.int64]:
    """A client's rows of a `split`, in the order in which the device meets them: always the same one.

    `partition`: who holds what. `client`: the number of the device.
    """
    rows = partition.rows(client, split)
    if split == "test" and isinstance(partition, Ordered) and partition.in_order:
        return rows
    met = rows[arrange_by_hash(client, rows)]
    met.setflags(write=False)
    return met


def arrange_by_hash(client: int, rows: NDArray[np.int64]) -> NDArray[np.intp]:
    """The places of a client's rows in an order that tells nothing of them."""
    return np.argsort(hash_all(stream(client, b"order"), rows), kind="stable")

"""A plan of how many rows go where, as moves."""

from collections.abc import Iterable, Sequence

from torch import Tensor

from potluck.authoring import Move, Node


def list_moves(nodes: Sequence[Node], plan: Tensor) -> tuple[Move, ...]:
    """One for each ordered pair of devices between which rows are to go."""
    table = plan.tolist()
    found = []
    for a, source in enumerate(nodes):
        for b, target in enumerate(nodes):
            take = tuple((label, to[b]) for label, to in enumerate(table[a]) if a != b and to[b])
            if take:
                found.append(Move(source, target, take))
    return tuple(found)


def count_rows(moves: Iterable[Move]) -> int:
    """How many rows go with all of them."""
    return sum(count for move in moves for _, count in move.take)

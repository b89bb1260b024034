"""A tree of cohorts that split: paths for names, so that a name says where it stands.

The root is ""; the children of "0" are "00", "01" and so on, up to ten each. The tree *is* the collection of
its leaves; whoever knows these knows it all, and an old name still leads to those that came of it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
ROOT: Final = ""


def name_children(cohort: str, count: int) -> list[str]:
    """The names of a cohort's parts."""
    return [f"{cohort}{part}" for part in range(count)]


def find_common_ancestor(a: str, b: str) -> str:
    """The lowest cohort that both belong to."""
    shared = 0
    while shared < min(len(a), len(b)) and a[shared] == b[shared]:
        shared += 1
    return a[:shared]


def distance(a: str, b: str) -> int:
    """Edges from the deeper of two up to their lowest common ancestor: 1 between siblings."""
    return max(len(a), len(b)) - len(find_common_ancestor(a, b))


def find_descendants(cohort: str, leaves: Iterable[str]) -> list[str]:
    """The leaves that a cohort has become: itself if it is one."""
    return [leaf for leaf in leaves if leaf.startswith(cohort)]


def count_parts(cohort: str, leaves: Iterable[str]) -> int:
    """How many parts a cohort has split into; 0 if it is a leaf or none of the tree."""
    return len({leaf[len(cohort)] for leaf in leaves if leaf.startswith(cohort) and leaf != cohort})


def find_known_ancestor(claim: str, leaves: Collection[str]) -> str:
    """A name that leads into the tree: of a lost cohort, the nearest ancestor that still is in it."""
    while claim and not find_descendants(claim, leaves) and claim not in leaves:
        claim = claim[:-1]
    return claim


def replace_by_parts(table: Mapping[str, T], cohort: str, parts: Sequence[T]) -> dict[str, T]:
    """A table by leaf in which a cohort has given way to its parts, in its place."""
    out: dict[str, T] = {}
    for name, entry in table.items():
        if name == cohort:
            out |= dict(zip(name_children(cohort, len(parts)), parts, strict=True))
        else:
            out[name] = entry
    return out

"""A stack as a tree: a picture of who stands above whom, and below it what each floor does."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from potluck.core.colours import OTHERS
from potluck.core.units import plural
from potluck.layers import CLOUD
from potluck.report.floors import DEVICES, Floor

WIDTH, LEFT = 320, 88  # of the picture; names end at LEFT
TOP, STEP, END = 21, 40, 18  # above the middle of the first floor, from floor to floor, and below the last
MOST = {"cohorts": 4, "edges": 6, "users": 8, DEVICES: 16}  # of each floor that are drawn
SOME = 8  # of any other
LONG = 1000  # numbers that don't fit beside the picture
PLAIN = "none"
SIZES = (6.0, 4.5, 3.0)  # of devices, half as wide; the middle one where all are alike


class Node(NamedTuple):
    """One of a floor, and where it is drawn."""

    x: float
    shade: str
    above: int  # its place among those of the floor above


def render_stack(floors: Sequence[Floor]) -> str:
    """Picture and words, as HTML."""
    rows = "".join(f"<dt>{escape(_name(floor))}</dt><dd>{escape(floor.told)}</dd>" for floor in floors)
    return f'{draw_stack(floors)}<dl class="floors">{rows}</dl>'


def draw_stack(floors: Sequence[Floor]) -> str:
    """Floors from the cloud downward, as SVG in the page's ink; each cohort has a shade."""
    standing = [floor for floor in floors if floor.stands]
    sized = any(floor.name == "sizes" for floor in floors)
    told = " above ".join(_name(floor) for floor in standing)
    parts: list[str] = []
    above: list[Node] = []
    weights: Sequence[int] = ()
    for i, floor in enumerate(standing):
        y = TOP + STEP * i
        nodes = _place(floor, above, weights)
        if above:
            start, end = y - STEP + 9, y - 8
            parts += [f'<path d="M{above[n.above].x:.0f} {start}L{n.x:.0f} {end}"/>' for n in nodes]
        parts += _draw_floor(floor.name, nodes, y, sized)
        name = escape(_name(floor) if (floor.count or 0) < LONG else floor.name)
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end" class="floor">{name}</text>')
        above, weights = nodes, floor.shares
    height = TOP + STEP * (len(standing) - 1) + END
    return (
        f'<svg class="stack" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(told)}" '
        f'fill="none" stroke="currentColor" stroke-width="1">{"".join(parts)}</svg>'
    )


def share_out(count: int, weights: Sequence[int]) -> list[int]:
    """So many places by weights: one each if there are enough, the rest by the largest remainders."""
    if count < len(weights):
        return [int(i < count) for i in range(len(weights))]
    weights = weights if sum(weights) else [1] * len(weights)
    free = count - len(weights)
    exact = [free * weight / sum(weights) for weight in weights]
    found = [1 + int(share) for share in exact]
    most = sorted(range(len(weights)), key=lambda i: int(exact[i]) - exact[i])
    for i in most[: count - sum(found)]:
        found[i] += 1
    return found


def _name(floor: Floor) -> str:
    """A floor with how many there are, where that is known and not always one."""
    if floor.count is None or floor.name == CLOUD:
        return floor.name
    return plural(floor.count, floor.name.removesuffix("s"))


def _place(floor: Floor, above: Sequence[Node], weights: Sequence[int]) -> list[Node]:
    """Side by side, below whom they belong to."""
    most = MOST.get(floor.name, SOME)
    if not above:
        return [Node((LEFT + WIDTH) / 2, PLAIN, 0)]
    count = max(1, min(most, most if floor.count is None else floor.count))
    per = share_out(count, list(weights)[: len(above)] or [1] * len(above))
    parents = [i for i, number in enumerate(per) for _ in range(number)]
    wide = WIDTH - LEFT - 8
    shades = [OTHERS[i % len(OTHERS)] for i in range(count)]
    return [
        Node(
            LEFT + 4 + wide * (i + 0.5) / count,
            shades[i] if floor.name == "cohorts" and count > 1 else above[parents[i]].shade,
            parents[i],
        )
        for i in range(count)
    ]


def _draw_floor(name: str, nodes: Sequence[Node], y: int, sized: bool) -> Iterator[str]:
    for i, node in enumerate(nodes):
        fill = f'fill="{node.shade}"'
        if name == CLOUD:
            cloud = "M-14 9h28a7 7 0 0 0 1-14 11 11 0 0 0-22-2 8 8 0 0 0-7 16z"
            yield f'<path transform="translate({node.x:.0f} {y})" d="{cloud}"/>'
        elif name == DEVICES:
            half = SIZES[i % len(SIZES)] if sized else SIZES[1]
            yield _draw_box(node.x, y - 8 + 1.6 * half, half, 1.6 * half, 2, fill)
        elif name == "users":
            yield f'<circle cx="{node.x:.0f}" cy="{y - 4}" r="4" {fill}/>'
            yield f'<path d="M{node.x - 7:.0f} {y + 9}a7 7 0 0 1 14 0z" {fill}/>'
        elif name == "cohorts":
            yield _draw_box(node.x, y, 16, 8, 8, fill)
        else:
            yield _draw_box(node.x, y, 9, 7, 2, fill)


def _draw_box(x: float, y: float, width: float, height: float, corner: int, fill: str) -> str:
    """About a centre, so wide and so high in both directions."""
    at = f'x="{x - width:.1f}" y="{y - height:.1f}" width="{2 * width:g}" height="{2 * height:g}"'
    return f'<rect {at} rx="{corner}" {fill}/>'

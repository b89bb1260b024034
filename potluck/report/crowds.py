"""The crowd that an algorithm is for: a small picture of it, and how far this one is like that."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from potluck.core.colours import OTHERS
from potluck.core.notes import Trait
from potluck.core.units import plural
from potluck.experiment import Run
from potluck.report.anomalies import know_culprits
from potluck.report.cohorts import read_hidden_groups

WIDTH, HEIGHT = 300, 92


def draw_crowd(trait: Trait, told: str) -> str:
    """A picture as SVG, in the page's ink; classes and kinds have a shade each."""
    drawn = {
        "classes": _draw_classes,
        "kinds": _draw_kinds,
        "edges": _draw_edges,
        "users": _draw_users,
        "sizes": _draw_sizes,
    }[trait]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{told}" fill="none" '
        f'stroke="currentColor" stroke-width="1.2">{"".join(drawn())}</svg>'
    )


def measure_crowd(trait: Trait, run: Run) -> str:
    """How far a run's crowd is like that, in a sentence; "" if nothing is known of it."""
    crowd = run.devices
    if crowd is None:
        return ""
    if trait == "classes":
        rows = np.array(crowd["rows"])
        return f"Here a device holds {(rows > 0).sum(1).mean():.1f} of {rows.shape[1]} classes."
    if trait == "kinds":
        kinds = len(set(read_hidden_groups(run.lines).values()))
        return f"Here there are {kinds} kinds, hidden from all." if kinds > 1 else "Here none are known."
    if trait == "edges":
        edges = len({edge for edge in crowd.get("edge", []) if edge >= 0})
        liars = len(know_culprits(run) or ())
        there = f"Here there {'is' if edges == 1 else 'are'} {plural(edges, 'edge')}"
        return f"{there}, and {f'{liars:,} of the devices lie' if liars else 'nobody lies'}."
    if trait == "users":
        owned = Counter(user for user in crowd.get("user", []) if user >= 0)
        several = sum(count > 1 for count in owned.values())
        known = f"Here {several:,} of {plural(len(owned), 'user')} have several."
        return known if owned else "Here no device has a known user."
    slow, fast = (float(pick(crowd["compute"])) for pick in (max, min))
    times = slow / max(fast, 1e-12)
    told = f"{times:.1f}" if times < 10 else f"{times:,.0f}"
    return f"Here the slowest computes {told} times as long as the fastest."


def _draw_device(x: float, y: float, width: float = 34, height: float = 54) -> str:
    return f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="5"/>'


def _draw_dot(x: float, y: float, shade: str, radius: float = 6) -> str:
    return f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{radius:g}" fill="{shade}"/>'


def _draw_classes() -> Iterator[str]:
    """Five devices with two of six classes each; dashed is what they meet."""
    for i in range(5):
        x = 10 + 58 * i
        yield _draw_device(x, 12, 46, 68)
        for c in range(6):
            held = c in (i, (i + 1) % 6)
            look = f'fill="{OTHERS[c]}"' if held else 'stroke-dasharray="2 3" opacity="0.6"'
            at = x + 7 + 18 * (c % 2), 20 + 19 * (c // 2)
            yield f'<rect x="{at[0]}" y="{at[1]}" width="14" height="14" rx="2" {look}/>'


def _draw_kinds() -> Iterator[str]:
    """Devices of two kinds, mixed."""
    for i, kind in enumerate("010110010100101101001"):
        x, y = 26 + 41 * (i % 7), 20 + 26 * (i // 7)
        one = OTHERS[0] if kind == "0" else OTHERS[3]
        yield _draw_dot(x, y, one, 8)


def _draw_edges() -> Iterator[str]:
    """A cloud, three edges and their devices, one of which lies."""
    yield '<path d="M136 28h28a7 7 0 0 0 1-14 11 11 0 0 0-22-2 8 8 0 0 0-7 16z"/>'
    for e in range(3):
        x = 60 + 90 * e
        yield f'<path d="M150 28L{x} 44" stroke-dasharray="4 4"/>'
        yield f'<rect x="{x - 9}" y="44" width="18" height="12" rx="2"/>'
        for d in range(4):
            at = x - 30 + 20 * d
            yield f'<path d="M{x} 56L{at} 72"/>' + _draw_dot(at, 78, OTHERS[e])
            if (e, d) == (1, 2):
                yield f'<path d="M{at - 8} 70l16 16m0-16l-16 16" stroke="#D55E00" stroke-width="3"/>'


def _draw_users() -> Iterator[str]:
    """Three users, each with devices that hold unequal heaps of unlike classes."""
    heaps = (((30, 6), (8, 0), (4, 12)), ((10, 4), (0, 34)), ((4, 4), (26, 10), (6, 0)))
    x = 5.0
    for own in heaps:
        width = 32 * len(own) + 8
        yield f'<rect x="{x:.0f}" y="6" width="{width}" height="80" rx="10" stroke-dasharray="4 4"/>'
        for i, (one, other) in enumerate(own):
            at = x + 8 + 32 * i
            yield _draw_device(at, 16, 24, 60)
            for top, rows, shade in ((72 - one, one, OTHERS[0]), (72 - one - other, other, OTHERS[3])):
                heap = f'x="{at + 4:.0f}" y="{top}" width="16" height="{rows}"'
                yield f'<rect {heap} fill="{shade}" stroke="none"/>'
        x += width + 5


def _draw_sizes() -> Iterator[str]:
    """From a large device to a small one."""
    x = 7.0
    for i, width in enumerate((60, 52, 40, 30, 22, 16, 12)):
        yield _draw_device(x, 84 - 1.25 * width, width, 1.25 * width)
        yield _draw_dot(x + width / 2, 84 - 0.62 * width, OTHERS[min(2, i // 2)], width / 4)
        x += width + 9

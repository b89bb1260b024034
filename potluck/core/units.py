"""Numbers as people read them."""

NONE = "–"


def duration(seconds: float | None) -> str:
    """Seconds in the two largest units that matter: 95 is `1 min 35 s`."""
    if seconds is None:
        return NONE
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, below, smaller in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def size(count: float | None) -> str:
    """Bytes: 1,500,000 is `1.5 MB`."""
    if count is None:
        return NONE
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.1f} {unit}"


def number(value: float) -> str:
    """To three digits, the rest of a long one 0."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.3g}"


def times(count: int) -> str:
    """How often: `once`, `7 times`, `1,200 times`."""
    return "once" if count == 1 else f"{count:,} times"


def plural(count: int, what: str) -> str:
    """How many: `1 device`, `1,200 devices`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def percent(share: float | None) -> str:
    """A share of 1: 0.956 is `95.6 %`."""
    return NONE if share is None else f"{100 * share:.1f} %"

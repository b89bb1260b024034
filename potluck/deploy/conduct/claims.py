"""What devices say of themselves, read with care: it is believed as far as it can be true."""

from potluck.core.codec import Limits
from potluck.core.errors import DecodeError
from potluck.core.messages import Spent
from potluck.core.trees import is_number
from potluck.deploy import parcels
from potluck.fleet import COLUMNS

PARTS = ("train", "validation", "test")
MOST_ROWS = 1 << 32
HELLO = Limits(bytes=1 << 20, tensors=0, depth=8, items=100_000)  # of what a device says of itself
LEAST, MOST = 1e-9, 1e18  # of a claim


def find_hello_problem(told: parcels.Present, classes: int) -> str | None:
    """Why a device can't take part; None if it can."""
    if told.protocol != parcels.PROTOCOL:
        spoken = f"speaks protocol {told.protocol % 10**9}, this server {parcels.PROTOCOL}"
        return f"{spoken}: install the same version"
    rows, labels = told.rows, told.labels
    if not all(
        type(name) is str and name in PARTS and type(count) is int and 0 <= count < MOST_ROWS
        for name, count in rows.items()
    ):
        return "says of its rows what can't be"
    if len(labels) != classes:
        return f"has labels of other classes than the federation's {classes}"
    if not all(type(n) is int and n >= 0 for n in labels) or sum(labels) != rows.get("train", 0):
        return "says of its labels what can't be"
    return None


def clean_claims(told: dict[str, float]) -> dict[str, float]:
    """What a device says of itself, as far as it can be."""
    good = {name: told[name] for name in COLUMNS if name in told and is_number(told[name])}
    return {name: min(max(float(number), LEAST), MOST) for name, number in good.items()}


def read_hello(parcel: bytes, classes: int) -> parcels.Present | str:
    """What a device says of itself, or why it can't take part."""
    try:
        told, _ = parcels.unpack_report(parcel, HELLO)
    except DecodeError as error:
        return parcels.make_line(str(error))
    if isinstance(told, parcels.Failed):
        return parcels.make_line(f"{told.status}: {told.why}")
    if not isinstance(told, parcels.Present):
        return f"a {type(told).__name__} where it was asked what it holds"
    return find_hello_problem(told, classes) or told


def find_spent(parcel: bytes, whole: float) -> Spent:
    """Where a task's seconds went: as its device says, as far as that can be; the rest was the way up."""
    try:
        head, _ = parcels.unpack_report(parcel)
    except DecodeError:
        return Spent(0.0, 0.0, whole)
    if not isinstance(head, parcels.Done):
        return Spent(0.0, 0.0, whole)
    told = [float(x) if is_number(x) and x > 0 else 0.0 for x in (head.down, head.compute)]
    down = min(told[0], whole)
    compute = min(told[1], whole - down)
    return Spent(down, compute, whole - down - compute)

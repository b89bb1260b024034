"""An experiment in a line."""

from potluck.experiment import Experiment
from potluck.report.units import duration


def crowd(e: Experiment) -> str:
    """Data, who holds them, devices and model of a resolved experiment."""
    clients = "the devices of a " if e.data.clients is None else f"{e.data.clients:,} devices of a "
    skew = f"dirichlet({e.data.alpha:g})" if e.data.partition == "dirichlet" else e.data.partition
    rows = "" if e.data.limit is None else f" ({e.data.limit:,} rows)"
    divided = f"divided by {skew} among {clients}{e.fleet.source} fleet"
    return f"{e.data.source}{rows}, {divided}; model {e.model.name}"


def ends(e: Experiment) -> str:
    """When a run ends."""
    s = e.stop
    limits = [
        "" if s.rounds is None else f"{s.rounds} rounds",
        "" if s.seconds is None else f"{duration(s.seconds)} of virtual time",
        "" if s.device_seconds is None else f"{duration(s.device_seconds)} of device time",
        "" if s.target is None else f"{s.target:.0%} accuracy",
    ]
    return " or ".join(limit for limit in limits if limit)

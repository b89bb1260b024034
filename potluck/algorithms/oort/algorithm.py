"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from typing import Annotated

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.oort import selection
from potluck.authoring import Average, Factor, Power, Seconds, ServerOptim, Train


def oort(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    explore: Annotated[float, "share of a round that goes to devices never heard, at first"] = 0.9,
    explore_decay: Annotated[float, "factor on it, every round"] = 0.98,
    explore_least: Annotated[float, "and where it ends"] = 0.3,
    window: Annotated[float, "new devices are drawn among so many times as are wanted: the best"] = 5.0,
    cutoff: Annotated[
        float, "known ones are drawn above this share of the lowest score that would do"
    ] = 0.05,
    clip: Annotated[float, "utilities above this quantile count as if at it"] = 0.9,
    doubt: Annotated[float, "how much it counts that a device wasn't heard for long"] = 0.1,
    penalty: Annotated[Power, "how much slowness counts; 0: not at all"] = 2.0,
    pace: Annotated[float, "percentile of durations that is preferred, at first"] = 30.0,
    pace_every: Annotated[int, "rounds between two looks of the pacer"] = 20,
    pace_step: Annotated[float, "by how much it raises or lowers the percentile"] = 5.0,
    server: Annotated[ServerOptim, "what becomes of a round's updates"] = Average(),
    overcommit: Annotated[Factor, "invite clients x overcommit, close at the first clients replies"] = 1.3,
    deadline: Annotated[Seconds | None, "seconds"] = None,
) -> FedAvg:
    """FedAvg among devices that are worth it."""
    new = explore, explore_decay, explore_least, window
    select = selection.Oort(*new, cutoff, clip, doubt, penalty, pace, pace_every, pace_step)
    return FedAvg(clients, local, select, server, overcommit, deadline)

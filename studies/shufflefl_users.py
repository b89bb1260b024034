"""ShuffleFL with more or fewer users a round (its Figure 13).

`potluck study shufflefl_users --scale paper` takes UCI HAR and 28 runs of 20 to 90 s of one core, 12 minutes
with `--jobs 2`.
"""

from _shufflefl import (
    DEVICES_PER_USER,
    FEDAVG,
    GRID,
    HAR,
    HAR_SIZES,
    MEASURES,
    QUICK,
    QUICK_SIZES,
    page,
    shufflefl,
)

from potluck.experiment.study import Scale, Study, overlay


def active(users: int) -> dict[str, object]:
    """So many users, or as many devices as these have."""
    devices = round(DEVICES_PER_USER * users)
    return {"algorithms": {"fedavg": {"clients": devices}, "shufflefl": {"users": users}}}


STUDY = Study(
    title="ShuffleFL: users a round",
    question="2 to 16 of 21 people, or as many devices, train a round. The more take part, the longer FedAvg "
    "waits for the slowest of them. Does ShuffleFL?",
    arms=[FEDAVG, shufflefl()],
    scenarios={f"{users} users": active(users) for users in (4, 2, 8, 16)},  # rates are chosen in the first
    measures=MEASURES,
    page=page,
    quick=Scale(overlay(QUICK, QUICK_SIZES), seeds=(1,), scenarios=("4 users", "2 users")),
    paper=Scale(overlay(HAR, HAR_SIZES, {"stop": {"rounds": 20}}), seeds=(1, 2, 3), tune=GRID),
)

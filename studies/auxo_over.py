"""Auxo over other algorithms, as in the paper's Figure 7: each alone and in cohorts, four hidden groups.

`potluck study auxo_over --scale paper` takes MNIST with its writers and 34 runs.
"""

from _cohorts import AGREES, COHORTS, EFFORT, QUICK, TABLE, TURNS, auxo, plain
from _tuning import try_rates

from potluck.experiment.study import ACCURACY, WORST, Arm, Scale, Study

# Those that train as FedAvg does take over its rate; the others have one of their own.
TUNED = {"fedavg": "FedAvg", "fedyogi": "FedYogi", "qfedavg": "q-FedAvg"}
TAKEN = {"fedprox": "FedProx", "oort": "Oort", "pyramidfl": "PyramidFL", "ftfa": "FTFA"}


def pair(algorithm: str, name: str, tuned_as: str) -> list[Arm]:
    """An algorithm alone and in cohorts; selectors choose among more check-ins than they need."""
    waiting = {"waiting": 1.6} if algorithm in ("oort", "pyramidfl") else {}
    own = None if tuned_as == name else tuned_as
    return [plain(name, algorithm, own), auxo(f"Auxo ({name})", algorithm, tuned_as=tuned_as, **waiting)]


STUDY = Study(
    title="Auxo over other algorithms",
    question="What do cohorts add to each algorithm, at the same resource?",
    arms=[
        *(arm for algorithm, name in TUNED.items() for arm in pair(algorithm, name, name)),
        *(arm for algorithm, name in TAKEN.items() for arm in pair(algorithm, name, "FedAvg")),
    ],
    scenarios={"4 groups": TURNS["4 groups"]},
    measures=(ACCURACY, WORST, *AGREES, COHORTS, EFFORT),
    quick=Scale(QUICK, seeds=(1,)),
    paper=Scale(TABLE, seeds=(1, 2), tune=try_rates([0.1, 0.2], 0.5)),
)

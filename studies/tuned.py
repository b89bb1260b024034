"""FedAvg and eleven methods, each tuned as hard as the others: the same number of trials, over its own keys.

`potluck study tuned --scale paper` takes Fashion-MNIST and 180 runs of 5 to 30 s of one core.

The design, written down before the first run:
- Methods: FedAvg, FedProx, FedYogi, SCAFFOLD, q-FedAvg, MOON, FedPVR, IFCA, FTFA, Oort, FedAsync and FedBuff.
- Each tries six settings, each with seeds 11 and 12, in runs of half the length, judged by mean accuracy over
  devices on validation rows: four of its grid (the learning rate, and its own key where it has one), two
  around the best of these, beyond an end of the grid where the best lies at one.
- What is chosen runs whole with seeds 1, 2 and 3, which no trial has seen, and is judged on test rows once.
- All have the same virtual time on the same phones, whose labels are dealt by Dirichlet(0.3).
- Counted: accuracy in the view that a device uses first, in the mean and of the worst tenth; time to 75 %.
"""

from typing import Any

from potluck.experiment.study import Arm, Scale, Study

RATES = [0.01, 0.03, 0.1, 0.3]
OWN: dict[str, Any] = {
    "fedprox": {"mu": [0.001, 0.01, 0.1, 1.0]},
    "fedyogi": {"server_lr": [0.003, 0.01, 0.03, 0.1]},
    "scaffold": {"server_lr": [0.5, 1.0]},
    "qfedavg": {"q": [0.01, 0.1, 1.0]},
    "moon": {"mu": [0.1, 1.0, 5.0]},
    "ifca": {"models": [2, 3, 4]},
    "ftfa": {"tune_epochs": [1, 2, 5]},
    "oort": {"penalty": [0.5, 1.0, 2.0]},
    "fedasync": {"alpha": [0.3, 0.6, 0.9]},
    "fedbuff": {"server_lr": [0.3, 1.0]},
}

STUDY = Study(
    title="Twelve methods, tuned alike",
    results="baselines",
    question="Who is still ahead of FedAvg when every method has had the same number of trials, over its own "
    "keys as well as the learning rate?",
    arms=[
        Arm("FedAvg", "fedavg"),
        Arm("FedProx", "fedprox"),
        Arm("FedYogi", "fedyogi"),
        Arm("SCAFFOLD", "scaffold"),
        Arm("q-FedAvg", "qfedavg"),
        Arm("MOON", "moon"),
        Arm("FedPVR", "fedpvr"),
        Arm("IFCA", "ifca"),
        Arm("FTFA", "ftfa"),
        Arm("Oort", "oort"),
        Arm("FedAsync", "fedasync"),
        Arm("FedBuff", "fedbuff"),
    ],
    quick=Scale(
        experiment={
            "data": {"source": "digits", "clients": 20, "alpha": 0.3},
            "model": {"name": "mlp"},
            "stop": {"seconds": 2.0},
            "evaluate": {"seconds": 1.0},
            "run": {"executor": "loop"},
        },
        seeds=(1,),
        arms=("FedAvg", "FedProx", "q-FedAvg"),
        tune={
            "trials": 4,
            "seeds": [11, 12],
            "grid": {"train": {"lr": [0.03, 0.1]}},
            "own": {"fedprox": OWN["fedprox"], "qfedavg": OWN["qfedavg"]},
        },
    ),
    paper=Scale(
        experiment={
            "data": {"source": "fashion-mnist", "limit": 6_000, "clients": 50, "alpha": 0.3},
            "model": {"name": "lenet5"},
            "fleet": {"source": "mobile"},
            "train": {"batch": 20, "epochs": 1},
            "stop": {"seconds": 2000.0},
            "evaluate": {"seconds": 100.0, "target": 0.75},
            "run": {"executor": "stacked", "graphs": False},
        },
        seeds=(1, 2, 3),
        tune={
            "trials": 6,
            "refine": 2,
            "seeds": [11, 12],
            "length": 0.5,
            "grid": {"train": {"lr": RATES}},
            "own": OWN,
        },
        limit=200,
    ),
)

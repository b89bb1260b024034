"""Eight baselines on label-skewed data and a mobile fleet.

`potluck study baselines` takes digits and less than a minute. `potluck study baselines --scale paper` takes
Fashion-MNIST (below $POTLUCK_DATA or ./data) and 36 runs of up to two minutes on two cores, of six of them.
"""

from _tuning import try_rates

from potluck.experiment.study import Arm, Scale, Study

STUDY = Study(
    title="Baselines on label-skewed data",
    question="Phones differ in speed and in what they have seen. Who learns fastest, who serves the worst "
    "tenth best, and at what traffic? All get the same virtual time and the same grid of learning rates.",
    arms=[
        Arm("FedAvg", "fedavg"),
        Arm("FedProx", "fedprox", {"mu": 0.1}),
        Arm("FedYogi", "fedyogi"),
        Arm("FedAdam", "fedadam"),
        Arm("FedAsync", "fedasync"),
        Arm("FedBuff", "fedbuff"),
        Arm("SCAFFOLD", "scaffold"),
        Arm("q-FedAvg", "qfedavg", {"q": 1.0}),
    ],
    quick=Scale(
        experiment={
            "data": {"source": "digits", "clients": 20, "alpha": 0.3},
            "model": {"name": "linear"},
            "stop": {"seconds": 3.0},
            "evaluate": {"seconds": 1.0, "target": 0.7},
            "run": {"executor": "loop"},
        },
        seeds=(1, 2),
        tune=try_rates([0.1, 0.3], 0.5),
    ),
    paper=Scale(
        experiment={
            "data": {"source": "fashion-mnist", "limit": 10_000, "clients": 100, "alpha": 0.3},
            "model": {"name": "lenet5"},
            "fleet": {"source": "mobile"},
            "train": {"batch": 10, "epochs": 1},
            "stop": {"seconds": 3000.0},
            "evaluate": {"seconds": 150.0, "target": 0.7},
        },
        # 6 x 3 trials and 6 x 3 runs: 36 of the 40 that are allowed. All eight would leave two seeds, whose
        # intervals say nothing; FedAdam differs little from FedYogi, and FedProx from FedAvg.
        arms=("FedAvg", "FedYogi", "FedAsync", "FedBuff", "SCAFFOLD", "q-FedAvg"),
        seeds=(1, 2, 3),
        tune=try_rates([0.03, 0.1, 0.3], 0.5),
    ),
)

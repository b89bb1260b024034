"""The experiment that a demonstration runs unless it is given another."""

from potluck.experiment.schema.experiment import Experiment


def make_sample() -> Experiment:
    """FedAvg on the digits that come with scikit-learn: seconds, and no download."""
    return Experiment(
        name="deploy-demo",
        algorithm="fedavg",
        data={"source": "digits", "partition": "dirichlet", "alpha": 1.0},
        model={"name": "mlp"},
        train={"lr": 0.1, "batch": 10},
        stop={"rounds": 10},
        evaluate={"rounds": 2},
        algorithms={"fedavg": {"clients": 3}},
    )

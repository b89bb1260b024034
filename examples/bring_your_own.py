"""Your own module and your own dataset among 15 devices: python examples/bring_your_own.py"""

import torch
from sklearn.datasets import load_wine
from torch import nn
from torch.utils.data import TensorDataset

import potluck
from potluck.data import from_dataset
from potluck.experiment import Experiment


class Mine(nn.Module):
    """Any module will do whose output is one number a class; no BatchNorm."""

    def __init__(self, shape, classes, width=1.0):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(shape[0], int(32 * width)), nn.ReLU())
        self.out = nn.Linear(int(32 * width), classes)

    def forward(self, x):
        return self.out(self.body(x))


x, y = load_wine(return_X_y=True)
data = TensorDataset(torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32), torch.tensor(y))
potluck.register_model("mine", Mine)
experiment = Experiment(
    name="wine",
    algorithm="fedavg",
    data={"partition": "dirichlet", "alpha": 0.5, "clients": 15},
    model={"name": "mine"},
    train={"lr": 0.05},
    stop={"rounds": 40},
)
run = potluck.run(experiment, pool=from_dataset(data, name="wine"))
print(f"global accuracy {run.summary['global_accuracy']:.1%} after {run.summary['rounds']} rounds")
print(run.models["global"])

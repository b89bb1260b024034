"""A model that takes its time, and an algorithm, of a user's own."""

import time

from torch import nn

import potluck
from potluck.algorithms.fedavg import FedAvg
from potluck.authoring import Train


class Slow(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.line = nn.Linear(width, classes)

    def forward(self, x):
        time.sleep(0.002)
        return self.line(x.flatten(1))


def few(local: Train = Train(), clients: int = 2) -> FedAvg:
    """FedAvg among few."""
    return FedAvg(clients, local)


potluck.register_model("slow", lambda shape, classes: Slow(shape[0], classes))
potluck.register_algorithm("few", few)

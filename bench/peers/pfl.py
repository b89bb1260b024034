"""pfl 0.6: its simulated backend with its PyTorch bridge, in one process or, by torchrun, in several.

Users come in the workload's order. Rows aren't shuffled: pfl keeps a user's batches as they are. Several
processes take users by turns; balancing users by their rows, which pfl does in further processes, was slower
in most trials on two cores.
"""

import os

import torch
import torch.nn.functional as F
from pfl.aggregate.base import get_num_datapoints_weight_name
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.common_types import Population
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from bench.contest import Contest
from bench.models import build, weights_of


class Net(torch.nn.Module):
    """What pfl asks of a module: its loss, and metrics, which it wants in the first round in any case."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def loss(self, x, y):
        self.train()
        return F.cross_entropy(self.net(x), y)

    @torch.no_grad()
    def metrics(self, x, y):
        return {"loss": Weighted(F.cross_entropy(self.net(x), y, reduction="sum").item(), len(y))}


class Laps(TrainingProcessCallback):
    """Tells a stop-watch of the start, and of each round and its rows."""

    def __init__(self, watch):
        self.watch = watch

    def on_train_begin(self, *, model):
        self.watch.start()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        rows = aggregate_metrics[get_num_datapoints_weight_name(Population.TRAIN)]
        self.watch.lap(rows.weighted_value)
        return False, Metrics()


def train(data, order, net, rounds, cohort, batch, rate, watch):
    """Rounds of users in this order; `data`: each one's rows and labels, where they are trained on."""
    users = FederatedDataset(lambda user: Dataset(data[user], user), MinimizeReuseUserSampler(order))
    wrapped = Net(net)
    FederatedAveraging().run(
        NNAlgorithmParams(rounds, rounds + 1, cohort, None),
        SimulatedBackend(users, users, [WeightByDatapoints()]),
        PyTorchModel(wrapped, torch.optim.SGD, torch.optim.SGD(wrapped.parameters(), lr=1.0)),
        NNTrainHyperParams(batch, local_num_epochs=1, local_learning_rate=rate),
        callbacks=[Laps(watch)],
        send_metrics_to_platform=False,
    )


def main():
    contest = Contest(__doc__)
    torch.set_num_threads(1)
    work = contest.workload
    data = {}
    for client in range(work.clients):
        rows = work.rows(client)
        data[client] = torch.from_numpy(work.x[rows]), torch.from_numpy(work.y[rows])
    order = [client for number in range(contest.total + 2) for client in work.cohort(number)]
    net = build(contest.model, contest.weights)
    train(data, order, net, contest.total, len(work.cohorts[0]), work.batch, work.rate, contest)
    if os.environ.get("RANK", "0") == "0":
        contest.answer(weights_of(net))


if __name__ == "__main__":
    main()

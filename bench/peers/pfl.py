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
    """Takes the time after each round."""

    def __init__(self, contest):
        self.contest = contest

    def on_train_begin(self, *, model):
        self.contest.start()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        rows = aggregate_metrics[get_num_datapoints_weight_name(Population.TRAIN)]
        self.contest.lap(rows.weighted_value)
        return False, Metrics()


def main():
    contest = Contest(__doc__)
    torch.set_num_threads(1)
    work = contest.workload
    data = {}
    for client in range(work.clients):
        rows = work.rows(client)
        data[client] = Dataset((torch.from_numpy(work.x[rows]), torch.from_numpy(work.y[rows])), client)
    order = [client for number in range(contest.total + 2) for client in work.cohort(number)]
    users = FederatedDataset(data.__getitem__, MinimizeReuseUserSampler(order))
    net = Net(build(contest.model, contest.weights))
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    FederatedAveraging().run(
        NNAlgorithmParams(contest.total, contest.total + 1, len(work.cohorts[0]), None),
        SimulatedBackend(users, users, [WeightByDatapoints()]),
        model,
        NNTrainHyperParams(work.batch, local_num_epochs=1, local_learning_rate=work.rate),
        callbacks=[Laps(contest)],
        send_metrics_to_platform=False,
    )
    if os.environ.get("RANK", "0") == "0":
        contest.answer(weights_of(net))


if __name__ == "__main__":
    main()

"""fedlab 1.3: its standalone pipeline with the serial trainer.

Changed: cohorts are the workload's, the mean is weighted by samples (fedlab's own server weighs all alike),
and batches are slices of a client's tensors, which is quicker than the DataLoader of fedlab's data sets.
fedlab imports torchvision for data sets that aren't used here. It isn't installed, since it would bring
another torch; an empty module stands in for it.
"""
# ruff: noqa: E402

import logging
import sys
import types

import torch

for name in ("torchvision", "torchvision.transforms"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["torchvision"].transforms = sys.modules["torchvision.transforms"]

from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils import Aggregators, SerializationTool

from bench.contest import Contest
from bench.models import build, weights_of


class Rows:
    """The workload as fedlab asks for it."""

    def __init__(self, workload):
        self.workload = workload

    def get_dataloader(self, client, batch):
        rows = self.workload.rows(client)
        x, y = torch.from_numpy(self.workload.x[rows]), torch.from_numpy(self.workload.y[rows])
        return [(x[part], y[part]) for part in torch.randperm(len(y)).split(batch)]


class Trainer(FedAvgSerialClientTrainer):
    """Sends the number of samples along."""

    def train(self, parameters, loader):
        count = sum(len(y) for _, y in loader)
        return [*super().train(parameters, loader), torch.tensor(float(count))]


class Server(FedAvgServerHandler):
    """Asks whom the workload names and weighs by samples."""

    contest: Contest

    def sample_clients(self):
        return self.contest.workload.cohort(self.round)

    def global_update(self, buffer):
        parameters, counts = [sent[0] for sent in buffer], [sent[1] for sent in buffer]
        SerializationTool.deserialize_model(self._model, Aggregators.fedavg_aggregate(parameters, counts))
        self.samples = sum(float(count) for count in counts)


class Pipeline(StandalonePipeline):
    """Takes the time where fedlab would evaluate."""

    def evaluate(self):
        self.handler.contest.lap(self.handler.samples)


def main():
    contest = Contest(__doc__)
    work = contest.workload
    torch.set_num_threads(1)
    torch.manual_seed(1)
    logging.disable(logging.INFO)
    model = build(contest.model, contest.weights)
    server = Server(model, contest.total, len(work.cohorts[0]) / work.clients)
    server.contest = contest
    trainer = Trainer(model, work.clients)
    trainer.setup_dataset(Rows(work))
    trainer.setup_optim(1, work.batch, work.rate)
    contest.start()
    Pipeline(server, trainer).main()
    contest.answer(weights_of(server.model))


if __name__ == "__main__":
    main()

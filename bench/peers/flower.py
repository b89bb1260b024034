"""Flower 1.41: its simulation runtime (Ray) with its FedAvg strategy, as it comes or `--tuned`.

As it comes: two cores for each client, and the client of Flower's PyTorch quickstart, which builds a model
and a DataLoader for every message. Tuned: one core and one thread for each client, so that two train at a
time; every process keeps its model; batches are slices of tensors; the server looks for replies every 10 ms
instead of every 100. Both: every process reads the data once, and the server asks whom the workload names.
"""

import os
import tempfile
from functools import cache

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # else whatever else runs here goes before Ray's workers
}

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.utils.data import DataLoader, TensorDataset

from bench.contest import Contest
from bench.models import build, weights_of
from bench.workload import Workload

load = cache(Workload.load)
client = ClientApp()


@cache
def kept(name, path):
    """This process's model, trained by one thread."""
    torch.set_num_threads(1)
    return build(name, load(path).weights[name])


@client.train()
def train(message, context):
    config = message.content["config"]
    work, tuned = load(config["path"]), config["tuned"]
    rows = work.rows(config["client"])
    x, y = torch.from_numpy(work.x[rows]), torch.from_numpy(work.y[rows])
    name = config["model"]
    model = kept(name, config["path"]) if tuned else build(name, work.weights[name])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=work.rate)
    if tuned:
        batches = [(x[part], y[part]) for part in torch.randperm(len(y)).split(work.batch)]
    else:
        batches = DataLoader(TensorDataset(x, y), batch_size=work.batch, shuffle=True)
    for images, labels in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    record = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(content=RecordDict(record), reply_to=message)


class Asked(FedAvg):
    """FedAvg that asks the workload's cohorts and takes the time after each round."""

    def __init__(self, contest):
        super().__init__(fraction_evaluate=0.0)
        self.contest, self.nodes = contest, []

    def configure_train(self, server_round, arrays, config, grid):
        work = self.contest.workload
        while len(self.nodes) < work.clients:  # they register while the server starts
            self.nodes = sorted(grid.get_node_ids())
        if server_round == 1:
            self.contest.start()
        messages = []
        for number in work.cohort(server_round - 1):
            content = RecordDict({"arrays": arrays, "config": ConfigRecord({**config, "client": number})})
            messages += self._construct_messages(content, [self.nodes[number]], "train")
        return messages

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        aggregated = super().aggregate_train(server_round, replies)
        self.contest.lap(sum(r.content["metrics"]["num-examples"] for r in replies))
        return aggregated


def main():
    contest = Contest(__doc__, tuned=False)
    tuned, server = contest.options.tuned, ServerApp()
    model = build(contest.model, contest.weights)

    @server.main()
    def run(grid, context):
        if tuned:
            grid.pull_interval = 0.01
        config = {"path": str(contest.path.resolve()), "model": contest.model, "tuned": tuned}
        arrays = ArrayRecord(model.state_dict())
        result = Asked(contest).start(grid, arrays, contest.total, train_config=ConfigRecord(config))
        model.load_state_dict(result.arrays.to_torch_state_dict())

    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        init = {"_temp_dir": folder, "_node_ip_address": "127.0.0.1"}
        resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}} if tuned else {}
        run_simulation(
            server, client, contest.workload.clients, backend_config={"init_args": init, **resources}
        )
    contest.answer(weights_of(model))


if __name__ == "__main__":
    # By its name, so that other processes find functions here and keep what they cache.
    from bench.peers.flower import main

    main()

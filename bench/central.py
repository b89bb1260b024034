"""The physical limit: a round's samples through one copy of the model, in batches of a cohort's size."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from bench.contest import Contest
from bench.models import build, weights_of
from bench.workload import Workload


def train_round(
    model: nn.Module, optimizer: torch.optim.Optimizer, workload: Workload, cohort: list[int]
) -> int:
    """Train on the rows of a cohort as if one held them all; how many they are."""
    rows = np.concatenate([np.arange(r.start, r.stop) for r in map(workload.rows, cohort)])
    x, y = torch.from_numpy(workload.x[rows]), torch.from_numpy(workload.y[rows])
    for batch in torch.randperm(len(y)).split(workload.batch * len(cohort)):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
    return len(y)


def main() -> None:
    contest = Contest(__doc__, threads=1)
    torch.set_num_threads(contest.options.threads)
    torch.manual_seed(1)
    model = build(contest.model, contest.weights)
    optimizer = torch.optim.SGD(model.parameters(), lr=contest.workload.rate)
    contest.start()
    for number in range(contest.total):
        contest.lap(train_round(model, optimizer, contest.workload, contest.workload.cohort(number)))
    contest.answer(weights_of(model))


if __name__ == "__main__":
    main()

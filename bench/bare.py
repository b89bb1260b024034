"""FedAvg by hand: the ordinary sequential PyTorch loop that everything else is compared with.

One process, one thread; a module, torch.optim.SGD, load_state_dict, a weighted mean of state dicts.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.contest import Contest
from bench.models import build, weights_of
from bench.workload import Workload

State = dict[str, Tensor]


def train_round(
    model: nn.Module,
    state: State,
    workload: Workload,
    cohort: list[int],
    order: Callable[[int], Tensor] = torch.randperm,
) -> tuple[State, int]:
    """The weighted mean of what the cohort makes of a state, and how many samples were trained on."""
    sums = {name: torch.zeros_like(value) for name, value in state.items()}
    total = 0
    for client in cohort:
        rows = workload.rows(client)
        x, y = torch.from_numpy(workload.x[rows]), torch.from_numpy(workload.y[rows])
        model.load_state_dict(state)
        optimizer = torch.optim.SGD(model.parameters(), lr=workload.rate)
        for batch in order(len(y)).split(workload.batch):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
        for name, value in model.state_dict().items():
            sums[name] += len(y) * value
        total += len(y)
    return {name: value / total for name, value in sums.items()}, total


def main() -> None:
    contest = Contest(__doc__)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = build(contest.model, contest.weights)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    contest.start()
    for number in range(contest.total):
        state, samples = train_round(model, state, contest.workload, contest.workload.cohort(number))
        contest.lap(samples)
    model.load_state_dict(state)
    contest.answer(weights_of(model))


if __name__ == "__main__":
    main()

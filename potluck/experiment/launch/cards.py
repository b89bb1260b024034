"""The GPUs of this machine, by their numbers among those that torch sees (CUDA_VISIBLE_DEVICES counts).

Whoever has used one can't start processes that do, so the process that starts them uses none: it lets a child
look which there are, and every other child takes its card before it does anything else with CUDA.
"""

from collections.abc import Sequence

import torch

from potluck.core.errors import ConfigError
from potluck.experiment.launch.child import Child, Tell, stop_on_exit
from potluck.experiment.launch.follower import Missing

USED = (
    "jobs: this process has trained already, or used the GPU, and where there is one torch can't train in "
    "its forks from then on; use the command line, a process of its own, or jobs=1"
)


def uses_card(run: Missing) -> bool:
    return run.experiment.run.device != "cpu"


def list_cards() -> list[str]:
    """The names of the cards, by their numbers."""
    if torch.cuda.is_initialized():
        raise ConfigError(USED)
    children: list[Child[list[str]]] = []
    with stop_on_exit(children):
        children.append(child := Child("GPUs", _list_here, children))
        names = child.wait()
        children.clear()
    return names


def _list_here(tell: Tell) -> list[str]:
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def pick_card(names: Sequence[str], taken: Sequence[int | None]) -> int | None:
    """The card with the fewest runs, the first of equals; none if there is none, which the run then says."""
    return min(range(len(names)), key=taken.count, default=None)


def take_card(number: int | None) -> None:
    """From now on `cuda` is this card, for all that this process does."""
    if number is not None:
        torch.cuda.set_device(number)

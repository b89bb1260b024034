"""Which rows a move takes."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.core import keys
from potluck.core.messages import Move


def draw_rows(have: NDArray[np.int64], labels: Tensor, move: Move, key: int) -> NDArray[np.intp] | None:
    """Places in the sender's rows, drawn by key; None when it can't be: whole or not at all."""
    if move.src == move.dst:
        return None
    mine = labels[torch.tensor(have)].cpu().numpy()
    order = keys.hash_all(key, have)
    taken = [np.zeros(0, np.intp)]
    for label, count in move.take:
        places = np.flatnonzero(mine == label)
        if not 0 <= count <= len(places):
            return None
        taken.append(places[np.argsort(order[places], kind="stable")[:count]])
    go = np.concatenate(taken)
    return go if len(np.unique(go)) == len(go) else None  # a label named twice may not take a row twice

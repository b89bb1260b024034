"""What aggregators are made of: the loop, folding, selection, server optimisers."""

from potluck.rules.fold import by_weight, equally, fold
from potluck.rules.rounds import Rounds, as_algorithm
from potluck.rules.select import Select, Uniform
from potluck.rules.server_optim import Adaptive, Average, ServerOptim
from potluck.rules.state import GlobalState
from potluck.rules.stream import Mix, Stream, StreamState, hinge, polynomial

__all__ = [
    "Adaptive",
    "Average",
    "GlobalState",
    "Mix",
    "Rounds",
    "Select",
    "ServerOptim",
    "Stream",
    "StreamState",
    "Uniform",
    "as_algorithm",
    "by_weight",
    "equally",
    "fold",
    "hinge",
    "polynomial",
]

"""What aggregators are made of: the loop, folding, selection, server optimisers."""

from potluck.aggregate.flame import Flame
from potluck.aggregate.fold import by_weight, equally, fold
from potluck.aggregate.one_model import Global
from potluck.aggregate.oort import Oort
from potluck.aggregate.pyramid import Pyramid
from potluck.aggregate.rounds import Rounds, placed
from potluck.aggregate.select import Select, Uniform
from potluck.aggregate.server_optim import Adaptive, Average, ServerOptim
from potluck.aggregate.stream import Flow, Mix, Stream, hinge, polynomial

__all__ = [
    "Adaptive",
    "Average",
    "Flame",
    "Flow",
    "Global",
    "Mix",
    "Oort",
    "Pyramid",
    "Rounds",
    "Select",
    "ServerOptim",
    "Stream",
    "Uniform",
    "by_weight",
    "equally",
    "fold",
    "hinge",
    "placed",
    "polynomial",
]

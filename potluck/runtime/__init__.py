"""Runtimes: the simulator and the executors that it trains with."""

from potluck.runtime.executors import EXECUTORS, ExecutionPlan, make_executor
from potluck.runtime.schedule import EvaluateAt, Progress, StopAt
from potluck.runtime.simulate import Simulation
from potluck.runtime.world import World

__all__ = [
    "EXECUTORS",
    "EvaluateAt",
    "ExecutionPlan",
    "Progress",
    "Simulation",
    "StopAt",
    "World",
    "make_executor",
]

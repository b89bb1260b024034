"""Runtimes: the simulator and the executors that it trains with."""

from potluck.runtime.executors import EXECUTORS, ExecutionPlan, make_executor
from potluck.runtime.simulate import EvaluateAt, Progress, Simulation, StopAt
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

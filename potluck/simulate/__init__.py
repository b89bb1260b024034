"""The virtual clock: one machine plays all devices and all servers."""

from potluck.simulate.simulation import Simulation

__all__ = ["Simulation"]

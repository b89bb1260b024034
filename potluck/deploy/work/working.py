"""The process of a device: it works for its federation's server."""

import time
from collections.abc import Callable
from pathlib import Path

from potluck.deploy.https.wire import Wire
from potluck.deploy.work import join
from potluck.deploy.work.agent import Agent
from potluck.deploy.work.device_folder import make_device
from potluck.deploy.work.manners import Manners

PAUSE = 2.0  # seconds between two looks for a server


def work(home: Path, begin: Callable[[Agent], None], say: Callable[[str], None]) -> None:
    """Be a device until somebody ends it; `begin` is told whom to end."""
    device, told = make_device(home)
    while not join.complete(home, told.address):
        say(f"no server at {told.address} yet; trying again")
        time.sleep(PAUSE)
    manners = Manners(told.longest, told.jobs_a_minute, told.ready)
    agent = Agent(device, Wire(told.address, home), say, manners)
    begin(agent)
    say(f"{told.name}: ready, {len(device.holding.rows('train'))} rows to train on; server {told.address}")
    agent.run()

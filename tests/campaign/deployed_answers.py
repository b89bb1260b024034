"""Devices answer a deployed server with what isn't an answer: what is served is as if these had been lost."""

import functools
import random
import tempfile
from pathlib import Path

import torch
from every import make
from federations import small
from https_fleets import fleet, found_federation
from schedules import Stage, find_difference_between, run_by_script
from wrong_answers import KINDS, LIMITS, spoil

from potluck.deploy import parcels

DEVICES, ROUNDS, LIARS = (12, 9, 15), 4, (1, 2)
AT_ONCE = ROUNDS * len(LIARS)  # answers that one run refuses; fewer in a row than a server bears
OFTEN = 50  # one run of so many over HTTPS
TITLE = f"reports of {len(KINDS)} kinds that can't be, to a deployed server; one run of {OFTEN} over HTTPS"
COUNT, QUICK = 10_000, 16


def attempt(number: int, folder: Path) -> None:
    """One answer of those that a run refuses."""
    assert find_fault(number // AT_ONCE) == ""


@functools.lru_cache(maxsize=2)
def find_fault(run: int) -> str:
    """What is wrong with a run whose liars answer anything."""
    torch.set_num_threads(1)

    def lie(node, count, report):
        which = run * AT_ONCE + LIARS.index(node) * ROUNDS + count
        return spoil(random.Random(which), report, KINDS[which % len(KINDS)])

    with tempfile.TemporaryDirectory(prefix="campaign-") as place:
        over_https = run % OFTEN == 0
        stage = make_stage(Path(place), real=over_https)
        if over_https:
            keys = Path(place) / "keys"
            keys.mkdir()
            with fleet(stage, found_federation(keys, "012"), Path(place), dict.fromkeys(LIARS, lie)):
                stage.server.run()
        else:
            run_by_script(stage, lambda heard: change(stage, heard, lie))
        stage.server.close()
    lost = stage.server.state.accounts.lost
    return (
        ("" if lost == {"bad": AT_ONCE} else f"{lost} were lost")
        or find_difference_between(stage.server, expect())
        or ""
    )


@functools.cache
def expect():
    """A run in which nobody lied, and these answers were lost."""
    lost = parcels.pack(parcels.Failed("", "bad", "lost"))
    with tempfile.TemporaryDirectory(prefix="campaign-") as place:
        stage = make_stage(Path(place))
        run_by_script(stage, lambda heard: change(stage, heard, lambda node, count, report: lost))
        stage.server.close()
    return stage.server


def change(stage, heard, lie):
    if heard.node not in LIARS:
        return heard.parcel
    count = [node for node, _ in stage.port.keys].count(heard.node) - 1
    return lie(heard.node, count, heard.parcel)


def make_stage(folder, real=False):
    federation, algorithm = small(DEVICES), make("fedavg", clients=3)
    return Stage(federation, algorithm, folder, rounds=ROUNDS, real=real, limits=LIMITS)

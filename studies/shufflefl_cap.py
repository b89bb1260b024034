"""ShuffleFL's work cap: how soon FedAvg's final accuracy is reached where rounds don't wait for slow users.

`potluck study shufflefl_cap --scale paper` takes MNIST with its writers and 21 runs of 1 to 3 minutes of one
core; `shufflefl_cap_people` UCI HAR and 18 runs of less than a minute.

The design, fixed before the first run:
- Arms: FedAvg, ShuffleFL as published, at its defaults (which cap), and with the cap alone (no row moves). On
  writers also at its defaults with 20 users a round, twice as many.
- Writers: 50 of MNIST's, ten of them or 35 devices a round, for 120 rounds, by when FedAvg's accuracy hardly
  grows. People: UCI HAR's 21, eight of them or 28 devices a round, for 40 rounds. Three seeds.
- Rates by the grids of the older studies of the same crowds, two each with seed 1 on validation rows, in
  trials of a quarter and of half of the rounds; the cap alone, and more users, train at the default's.
- What counts: time to FedAvg's final accuracy at the same seed, and the difference at the end, both by means
  of three evaluations. Where a round's time goes: notes of hubs, in the mean over users; of FedAvg, the last
  2,000 tasks. Waiting for other users is what is left of a round.
- Expected: on writers FedAvg's final accuracy at least 3 times sooner in the mean, and not more than half a
  point behind at the end; on people at least 1.5 times sooner, at every seed.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from _shufflefl import (
    FEDAVG,
    GRID,
    HAR,
    MEASURES,
    QUICK,
    QUICK_SIZES,
    WRITERS,
    WRITERS_SIZES,
    page,
    round_seconds,
    shufflefl,
    sizes,
)
from _tuning import try_rates

from potluck.core.units import duration
from potluck.experiment.runs import Run
from potluck.experiment.study import Measure, Results, Scale, Study, overlay
from potluck.report.reproduction import make_markdown_table

PARTS = ("computing", "communication", "planning", "waiting")
DEFAULT = "ShuffleFL, default"
ARMS = [
    FEDAVG,
    shufflefl("ShuffleFL, published"),
    shufflefl(DEFAULT, mode="potluck"),
    shufflefl("cap alone", DEFAULT, mode="potluck", shuffle=False),
]
MORE = shufflefl("ShuffleFL, 20 users", DEFAULT, mode="potluck", users=20)


def trained(run: Run) -> float | None:
    """The share of the training of its rows that a user had time for."""
    found = [float(r["value"]) for r in run.lines if r["metric"] == "trained"]
    return fmean(found) if found else None


def split(run: Run) -> list[float]:
    """Seconds of a round by PARTS, of a device in the mean, and what is left of the round."""
    if run.summary["algorithm"] == "fedavg":
        assert run.devices is not None, "a study's runs are finished"
        tasks = run.devices["tasks"]
        computing, *ways = (fmean(map(float, tasks[part])) for part in ("compute", "down", "up"))
        found = [computing, sum(ways), 0.0, 0.0]
    else:
        told = {part: [r for r in run.lines if r["metric"] == f"{part}_seconds"] for part in PARTS}
        users = len(told["computing"])  # who has one device plans nothing
        found = [sum(float(r["value"]) for r in told[part]) / users for part in PARTS]
    return [*found, round_seconds(run) - sum(found)]


def splits(results: Results) -> str:
    """Where the time of a round goes, by arm."""
    names = [arm.name for arm in results.plan.arms]
    columns: list[list[str]] = [[] for _ in range(len(PARTS) + 2)]
    for name in names:
        runs: Sequence[Run] = results.runs["", name]
        parts = [fmean(part) for part in zip(*map(split, runs), strict=True)]
        for column, seconds in zip(columns, (sum(parts), *parts), strict=True):
            column.append(duration(seconds))
    head = ["", "round", "computing", "communication", "planning", "waiting in the user", "for other users"]
    return make_markdown_table(head, [names, *columns])


def parts(results: Results) -> str:
    said = (
        "Where the time of a round goes, of a device in the mean over users: what it computes, sends and "
        "receives, what its gateway plans, how long it waits for the others of its user, and then for other "
        "users; FedAvg knows no users, and its devices wait for each other."
    )
    return f"{page(results)}\n\n{said}\n\n{splits(results)}"


STUDY = Study(
    title="ShuffleFL: rounds that don't wait for slow users, on digits of writers",
    question="What is left of a round's time when rows have moved is the slow users. By default they train "
    "only for as long as the median user needs, and weigh less. How much sooner is FedAvg's final accuracy "
    "reached, and is anything lost at the end?",
    arms=[*ARMS, MORE],
    measures=[*MEASURES, Measure("share trained", trained, "share")],
    page=parts,
    notes="A target is reached when the mean of three evaluations, three rounds apart, is there.",
    quick=Scale(overlay(QUICK, QUICK_SIZES), seeds=(1,), arms=("FedAvg", "ShuffleFL, published", DEFAULT)),
    paper=Scale(
        overlay(WRITERS, WRITERS_SIZES, {"stop": {"rounds": 120}, "evaluate": {"rounds": 3}}),
        seeds=(1, 2, 3),
        tune=try_rates([0.001, 0.003], 0.25),
    ),
)

PEOPLE_SIZES = sizes(users=8, devices=28, edges=2, steps=15, seconds=50.0)
PEOPLE = replace(
    STUDY,
    title="ShuffleFL: rounds that don't wait for slow users, on activities of people",
    question="21 people with 2 to 5 devices each, eight of whom train a round. How much sooner is FedAvg's "
    "final accuracy reached where slow people train less, and is it reached at every seed?",
    arms=ARMS,
    notes="A target is reached when the mean of three evaluations is there.",
    paper=Scale(overlay(HAR, PEOPLE_SIZES), seeds=(1, 2, 3), tune=GRID),
)

STUDIES = {"people": PEOPLE}

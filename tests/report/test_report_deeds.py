"""What each algorithm did, in a sentence of its own: counted by hand from a few records."""

import pytest
from test_report_figures import compared, line, made

from potluck.algorithms import find_notes
from potluck.core.units import plural, times
from potluck.experiment import Experiment, Run
from potluck.report.contents import list_deeds
from potluck.report.page import render


def tell(algorithm, *lines):
    return find_notes()[algorithm].tell(lines)


def test_how_often():
    assert [times(n) for n in (1, 2, 1200)] == ["once", "2 times", "1,200 times"]
    assert [plural(n, "row") for n in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]


def test_detectors_and_who_was_served():
    trained = (line(1.0, "updates", [1, 0, 2]), line(5.0, "updates", [7, 6, 7]))  # 20 in all
    served = line(9.0, "accuracy_mean", 0.5)
    assert tell("classter", *trained, served) == (
        "Detectors of 3 classes were trained 20 times and never distilled. "
        "In the end devices were served the detectors."
    )
    distilled = line(2.0, "distilled", {"updates": 9, "seconds": 0.5})
    judged = [
        line(time, "judged", {"rows": 30.0, "detectors": 0.25, "general": share, "served": 1.0})
        for time, share in ((3.0, 0.125), (4.0, 0.875))
    ]
    early = line(5.0, "personal", 1.0, node=0)  # of another evaluation: not counted
    own = [line(9.0, "personal", share, node=node) for node, share in enumerate((0.5, 0.25))]
    assert tell("classter", *trained, distilled, *judged, early, *own, served) == (
        "Detectors of 3 classes were trained 20 times and distilled into a general model once; on rows kept "
        "back these were last right about 25.0 %, the general model about 87.5 %. In the end devices were "
        "served the general model; their own last layers answered 37.5 % of all rows."
    )


def test_splits_and_cohorts():
    rounds = [line(float(n), "cohort", {"participants": 5}, group="") for n in range(3)]
    assert tell("auxo", *rounds) == "Its one cohort trained 3 times and never split."
    split = line(2.0, "split", {"into": ["0", "1"], "round": 2}, group="")
    assert tell("auxo", *rounds, split) == (
        "Cohorts split once, after 2 rounds, into 2, and trained 3 times in all."
    )
    # One of the two splits into three: four are left. A device that was shut out by two is one device.
    more = line(3.0, "split", {"into": ["00", "01", "02"], "round": 3}, group="0")
    out = [line(3.0, "blacklisted", 7, group=name) for name in ("0", "1")]
    assert tell("auxo", *rounds, split, more, *out) == (
        "Cohorts split 2 times, first after 2 rounds, into 4, and trained 3 times in all. "
        "1 device had to stay out."
    )


@pytest.mark.parametrize("algorithm", ["maverick", "fededge"])
def test_rounds_held_while_the_cloud_was_silent(algorithm):
    held = [line(float(n), "local_rounds", n, group=9) for n in (1, 4, 2)]
    # 7 rounds for 3 answers; who waits for the cloud's model holds one each, so 4 are more.
    odd = [line(2.0, "anomalous", nodes, group=9) for nodes in ([3], [3, 4])]
    assert tell(algorithm, *held, *odd) == (
        "Edges held 7 rounds with their devices for 3 answers to the cloud, 4 more than if they had waited "
        "for its models; 3 updates left out as odd."
    )
    assert tell(algorithm, held[0]) == (
        "Edges held 1 round with their devices for 1 answer to the cloud, one for each; "
        "0 updates left out as odd."
    )


def test_rows_moved():
    moved = [line(float(n), "rows_moved", n, group=user) for n, user in ((30, 5), (0, 6), (1000, 5))]
    took = [line(1.0, "planning_seconds", seconds, group=5) for seconds in (0.25, 1.0)]
    assert tell("shufflefl", *moved, *took) == (
        "1,030 rows moved among the devices of 2 users, in 2 of 3 plans, made in 1.2 s."
    )


def test_tiers_with_members():
    made = line(1.0, "tiers", {"scales": [1.0, 0.5], "members": [2, 1]})
    places = [
        line(1.0, "tier", {"tier": tier, "why": "resources"}, group=node)
        for node, tier in enumerate((0, 0, 1))
    ]
    moved = line(4.0, "tier", {"tier": 1, "from": 0, "why": "late"}, group=0)
    done = [line(float(n), "tier_round", {"round": n}, group=0) for n in (1, 2)]
    assert tell("fedrac", made, *places, *done, moved) == (
        "Its 2 tiers, the richest first, had 1 and 2 members in the end; they trained 2 and 0 rounds."
    )
    shared = line(4.0, "shared", {"helpers": [0, 1]})
    out = line(1.0, "left_out", "too little memory", group=8)
    assert tell("fedrac", out, made, *places, *done, moved, shared) == (
        "Its 2 tiers, the richest first, had 1 and 2 members in the end, and 0 and 1 helpers of richer "
        "tiers; they trained 2 and 0 rounds. 1 device too small for any model."
    )


@pytest.mark.parametrize("algorithm", ["classter", "auxo", "maverick", "shufflefl", "fedrac"])
def test_nothing_is_told_of_a_run_without_records(algorithm):
    assert tell(algorithm) == ""


def test_a_report_has_each_ones_sentence_and_says_of_which_seed():
    moved = [line(1.0, "rows_moved", rows, group=5) for rows in (8, 2)]
    runs = [made(line(1.0, "accuracy_mean", 0.5))]  # FedAvg says nothing of itself
    for seed, rows in enumerate(moved, 1):
        run = made(rows, algorithm="mine", seed=seed)
        runs.append(Run(Experiment(algorithm="shufflefl"), run.summary, None, _lines=run.lines))
    together = compared(*runs, seeds=[1, 2])
    assert [name for name, _ in list_deeds(together)] == ["mine"]
    page = render(together, [])
    assert ">What each did (seed 1)</h2>" in page
    assert "<b>mine</b><svg" in page  # a picture of the crowd that it is for
    assert "<p>For users with several devices of unequal speed, whose rows are lopsided.</p>" in page
    assert "<p>8 rows moved among the devices of 1 user, in 1 of 1 plan" in page
    assert "What each did" not in render(compared(runs[0]), [])

"""What a run writes down so that a report can be drawn: who took part, and the last tasks."""

import json
from dataclasses import replace

import pytest
from federations import LOCAL, chained, finished, lines, simulate, small

from potluck.algorithms.fedavg import FedAvg
from potluck.core.codec import value
from potluck.core.errors import SnapshotError
from potluck.core.messages import Move
from potluck.engine.schedule import EvaluateAt
from potluck.engine.timeline import KEPT, Leg, Timeline, make_columns
from potluck.experiment import Experiment, load, run
from potluck.experiment import folder as folders
from potluck.experiment.device_summary import MOST, summarise_devices
from potluck.fleet import OnOff

RULE = FedAvg(clients=3, local=LOCAL)
TINY = Experiment(
    data={"source": "synthetic", "rows": 300, "dimension": 4, "classes": 3, "clients": 6},
    model={"name": "linear"},
    stop={"rounds": 3},
    algorithms={"fedavg": {"clients": 2}},
    run={"executor": "loop"},
)


def legs(sim):
    return [Leg(*each) for each in sim.devices.timeline]


def test_every_task_leaves_a_leg():
    sim = finished(small(), RULE, rounds=2)
    done = legs(sim)
    assert len(done) == 6  # 2 rounds of 3
    assert [leg.ended for leg in done] == sorted(leg.ended for leg in done)
    for leg in done:
        assert leg.fate == ""
        assert leg.ended == pytest.approx(leg.began + leg.down + leg.compute + leg.up)
    told = make_columns(sim.devices.timeline)
    assert told["barrier"] == [0, 0, 0, 1, 1, 1]
    assert told["node"] == [leg.node for leg in done]


def test_tasks_that_come_to_nothing_say_why():
    late = finished(small(), replace(RULE, deadline=0.2), rounds=4)
    called_off = [leg for leg in legs(late) if leg.fate]
    assert {leg.fate for leg in called_off} == {"late"}
    assert len(called_off) == late.accounts.lost["late"]
    gone = finished(small(availability=OnOff(3, 4.0, 0.5)), RULE, rounds=6)
    assert [leg.fate for leg in legs(gone)].count("gone") == gone.accounts.lost["gone"] > 0


def test_only_the_last_ones_are_kept():
    timeline = Timeline(((None, i, 2), 9, i, 0.0, 0.0, 0.0, 0.0, float(i), "") for i in range(KEPT + 5))
    timeline = Timeline(timeline, maxlen=KEPT)
    assert len(timeline) == KEPT
    assert make_columns(timeline)["node"][0] == 5


def test_a_resumed_run_leaves_the_same_device_summary():
    settings = dict(rounds=3, often=EvaluateAt(rounds=2))
    straight = finished(small(), RULE, **settings)
    resumed, events = chained(small(), RULE, **settings)
    assert events > 5
    assert lines(resumed) == lines(straight)
    assert summarise_devices(resumed) == summarise_devices(straight)


@value
class Swap(FedAvg):
    """FedAvg that first moves all rows of a class from one device to the next."""

    def plan(self, m, lane, ctx):
        m, commands = FedAvg.plan(self, m, lane, ctx)
        return m, [*([Move(6, 7, ((0, 1),))] if m.round == 0 else []), *commands]


def test_a_device_summary_says_who_held_what_before_and_after():
    still = summarise_devices(finished(small(), RULE))
    assert still["rows_at_end"] is None
    assert [sum(row) for row in still["rows"]] == [3, 7, 10, 12, 5, 9, 20, 4, 11, 6]
    moved = summarise_devices(finished(small(), Swap(clients=3, local=LOCAL)))
    first, last = moved["rows"], moved["rows_at_end"]
    assert last[6][0] == first[6][0] - 1
    assert last[7][0] == first[7][0] + 1
    assert [last[n] for n in (0, 1, 2, 3, 4, 5, 8, 9)] == [first[n] for n in (0, 1, 2, 3, 4, 5, 8, 9)]


def test_a_device_summary_is_of_those_who_are_evaluated_and_stays_small():
    sim = finished(small(edges=2), RULE, often=EvaluateAt(panel=4))
    told = summarise_devices(sim)
    assert told["nodes"] == sim.panel.tolist()
    assert told["devices"] == 10
    assert len(told["edge"]) == len(told["compute"]) == len(told["rows"]) == 4
    assert "user" not in told  # nobody has one
    assert told["tiers"] == {"cloud": 10}
    many = small([1] * (MOST + 50), data=load_many())
    told = summarise_devices(simulate(many, RULE, often=EvaluateAt(panel=MOST + 50)))
    assert len(told["nodes"]) == MOST
    assert (told["nodes"][0], told["nodes"][-1]) == (0, MOST + 49)


def load_many():
    from federations import pool

    return pool(rows=8000)


def test_a_runs_folder_has_it_and_memory_too(tmp_path):
    inside, outside = run(TINY, tmp_path / "a"), run(TINY)
    stored = json.loads((tmp_path / "a" / "devices.json").read_text())
    assert stored == json.loads(json.dumps(outside.devices)) == load(tmp_path / "a").devices
    assert inside.devices == stored
    assert len(stored["tasks"]["node"]) == 6
    run(TINY, tmp_path / "a", force=True)  # the file is Potluck's own


def test_runs_without_it_and_with_a_damaged_one(tmp_path):
    run(TINY, tmp_path / "a")
    place = tmp_path / "a" / folders.DEVICES
    place.write_text("{")
    with pytest.raises(SnapshotError, match=r"devices.json: damaged"):
        _ = load(tmp_path / "a").devices
    place.unlink()
    assert load(tmp_path / "a").devices is None

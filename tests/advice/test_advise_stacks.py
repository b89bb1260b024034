"""Layers are named where several inequalities are measured, and never such as don't go together."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import potluck.advice.pilot as pilot
from potluck.advice import measure
from potluck.advice.pilot import run_pilot
from potluck.advice.recommendation import judge
from potluck.advice.together import ALIKE, find_stack
from potluck.cli import main
from potluck.cli.advise import tell_stack
from potluck.core.advice import HELPS_FROM, Advice, AsLayer, Conflict, Edges, Users
from potluck.experiment import Experiment
from potluck.experiment.build import build_federation
from potluck.layers import find_refusal

CROWD = {
    "data": {
        "source": "digits",
        "partition": "user_devices",
        "users": 24,
        "devices_per_user": [2, 5],
        "alpha": 0.1,
        "smallest": 4,
        "groups": {"kind": "permutation", "count": 2, "by": "user"},
    },
    "model": {"name": "linear"},
    "fleet": {"source": "mobile"},
    "run": {"executor": "loop"},
}


def look(tables):
    full = Experiment(**tables).resolve()
    return measure(build_federation(full), full)


@pytest.fixture(scope="module")
def crowd():
    return look(CROWD)


def advised(*layers):
    """What systems would say whose layers have these scores."""
    tables = {"cohorts": {"cohorts": 2, "clients": 30}}
    return [
        Advice(name, name, 0.0, "", "", layer=AsLayer(name, score, f"why {name}", tables.get(name, {})))
        for name, score in layers
    ]


def with_users(measured, alike=1.0, together=True):
    return replace(measured, users=Users(24, 1.0, 0.2, 1.0, 0.0, alike, together))


def with_edges(measured, count=24, alike=1.0):
    return replace(measured, edges=Edges(count, 3.0, 5.0, 2.0, 0.5, 1.0, 0.2, alike))


# ------------------------------------------------------------------------------------------------ quantities


def test_whether_a_users_devices_are_alike_by_hand():
    def found(owner, member):
        return Conflict(2, 0.0, 0.0, 0.0, 0.0, np.array(member)).measure_alike(np.array(owner))

    assert found([0, 0, 1, 1], [0, 0, 1, 1]) == 1.0
    # Of two pairs none is alike; of all six two are, so (0 - 1/3) / (2/3).
    assert found([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(-0.5)
    # One of the two is; of all six three are: (1/2 - 1/2) / (1/2).
    assert found([0, 0, 1, 1], [0, 0, 0, 1]) == pytest.approx(0.0)
    assert found([0, 0, -1, -1], [1, 1, 0, 1]) == 1.0  # of nobody's devices nothing is asked
    assert found([0, 1, 2, -1], [0, 0, 1, 1]) is None  # no two have one owner
    assert found([0, 0, 1, 1], [0, 0, 0, 0]) == 1.0


# ------------------------------------------------------------------------------------------ which layers


def test_users_whose_groups_contradict_get_both_layers_and_why(crowd):
    found = judge(crowd).stack
    assert found.layers == ("users", "cohorts")
    assert found.line == 'layers = ["users", "cohorts"]'
    assert found.tables == {"users": {"planner": "fill"}, "cohorts": {"cohorts": 2, "clients": 24}}
    assert found.members == 24  # not its 82 devices
    skew, alike = crowd.users.skew, crowd.users.alike
    assert f"differ by {skew:.2f} from their user's" in found.why["users"]
    assert "2 groups of devices see the same classes differently" in found.why["cohorts"]
    assert f"devices of one user are of one group ({alike:.2f}: 1 all, 0 by chance)" in found.why["cohorts"]


def test_groups_within_users_are_not_for_users_as_one():
    data = {**CROWD["data"], "groups": {"kind": "permutation", "count": 2}}
    found = look({**CROWD, "data": data})
    assert found.users.alike < 0.3
    assert judge(found).first.algorithm == "auxo"
    assert judge(found).stack is None


def test_small_memories_and_groups_get_sizes_inside_cohorts(crowd):
    found = find_stack(advised(("sizes", 0.9), ("cohorts", 0.8)), crowd)
    assert found.layers == ("cohorts", "sizes")
    assert found.tables["cohorts"] == {"cohorts": 2, "clients": 30}  # devices: nobody is between


def test_what_the_matrix_refuses_gives_way_to_what_goes_together(crowd):
    assert find_refusal("fedavg", ["users", "sizes"]) is not None
    three = advised(("users", 0.9), ("sizes", 0.95), ("cohorts", 0.6))
    assert find_stack(three, with_users(crowd)).layers == ("cohorts", "sizes")
    assert find_stack(three[:2], with_users(crowd)) is None


@pytest.mark.parametrize(
    ("layers", "edit", "named"),
    [
        ((("users", 0.9), ("cohorts", 0.9)), {}, ("users", "cohorts")),
        ((("users", 0.9), ("cohorts", HELPS_FROM - 0.01)), {}, None),  # one inequality alone
        ((("users", 0.9), ("cohorts", 0.9)), {"alike": ALIKE - 0.01}, None),
        ((("users", 0.9), ("cohorts", 0.9)), {"alike": None}, None),  # nobody knows
        ((("users", 0.9), ("edges", 0.9)), {}, ("users", "edges")),
        ((("users", 0.9), ("edges", 0.9)), {"together": False}, None),  # people below several edges
    ],
)
def test_which_layers_are_named(crowd, layers, edit, named):
    found = find_stack(advised(*layers), with_edges(with_users(crowd, **edit)))
    assert (None if found is None else found.layers) == named


def test_too_few_edges_for_cohorts_to_split_are_no_stack(crowd):
    wanted = advised(("edges", 0.9), ("cohorts", 0.9))
    assert find_stack(wanted, with_edges(crowd, count=12)).tables["cohorts"]["clients"] == 12
    assert find_stack(wanted, with_edges(crowd, count=6)) is None


@given(
    st.dictionaries(st.sampled_from(["users", "edges", "cohorts", "sizes"]), st.floats(0, 1)),
    st.floats(-1, 1),
)
def test_no_stack_is_named_that_would_be_refused(crowd, scores, alike):
    found = find_stack(advised(*scores.items()), with_edges(with_users(crowd, alike), alike=alike))
    if found is None:
        return
    assert len(found.layers) >= 2
    assert find_refusal("fedavg", found.layers) is None
    assert all(scores[name] >= HELPS_FROM for name in found.layers)
    assert list(found.why) == list(found.layers)
    assert "cohorts" not in found.layers or {"users", "edges"}.isdisjoint(found.layers) or alike >= ALIKE


# ------------------------------------------------------------------------------------ pilots, the command


def test_a_pilot_tries_the_layers_beside_the_systems(crowd, monkeypatch):
    tried, run = [], pilot.run
    monkeypatch.setattr(pilot, "run", lambda e, **more: tried.append(e) or run(e, **more))
    asked = Experiment(**CROWD, layers=["users"], layer={"users": {"planner": "fill"}})
    found = run_pilot(asked, judge(crowd), crowd, rounds=2)
    assert (found.stack.algorithm, found.stack.failed) == ("users+cohorts", "")
    assert found.stack.late is not None
    assert found.stack.algorithm not in [t.algorithm for t in found.trials]
    *alone, stack = tried
    assert all(e.layers == [] for e in alone)
    assert stack.layers == ["users", "cohorts"]
    assert stack.layer["cohorts"] == {"cohorts": 2, "clients": 24}
    assert stack.stop.seconds == found.trials[0].seconds


def test_how_layers_did_is_told_beside_the_best_without():
    late = {"fedavg": 0.5, "auxo": 0.75, "shufflefl": None}
    tried = pilot.Pilot(tuple(pilot.Trial(name, end, end) for name, end in late.items()), 0.02, "auxo")
    stack = pilot.Trial("users+cohorts", 0.875, 0.875)
    assert tell_stack(stack, tried) == "as layers, users+cohorts: +12.5 points beside auxo, the best without"
    failed = pilot.Trial("users+cohorts", failed="why")
    assert tell_stack(failed, tried) == "as layers, users+cohorts couldn't be piloted"


def test_the_command_prints_what_a_file_would_say(tmp_path, capsys):
    path = tmp_path / "crowd.toml"
    path.write_text(Experiment(**CROWD).to_toml())
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit):
            main(["advise", str(path), *more])
    text, told = capsys.readouterr().out.split("{", 1)
    assert 'or several systems as layers around fedavg: layers = ["users", "cohorts"]\n' in text
    assert "  [layer.cohorts]\n  cohorts = 2\n  clients = 24\n" in text
    assert max(map(len, text.splitlines())) <= 100
    stack = json.loads("{" + told)["stack"]
    assert stack["layers"] == ["users", "cohorts"]
    assert stack["layer"]["cohorts"] == {"cohorts": 2, "clients": 24}
    assert stack["why"].keys() == {"users", "cohorts"}

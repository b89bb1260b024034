"""Stacks in reports: who stands above whom, notes by path, agreement by user, views without a layer."""

import re

import pytest
from federations import LOCAL, LOOP, finished, small
from test_report_figures import compared, crowd, line, made, named

from potluck.algorithms import find_notes
from potluck.engine.judges import place_judge
from potluck.experiment import Experiment, Run
from potluck.layers import Level, describe_stack, find_source, stacked
from potluck.metrics import Measurement
from potluck.report import captions, floors, note_figures, owners, per_device, served
from potluck.report.contents import draw_all, list_deeds
from potluck.report.gather import is_one_federation, name_runs
from potluck.report.page import render
from potluck.report.stack_picture import draw_stack, share_out
from potluck.rules.guard import guard
from potluck.rules.robust import Median

PEOPLE = {"tiers": {"cloud": 4, "user": 5}, "user": [0, 0, 1, 1]}


def run_of(*lines, devices=None, **tables):
    run = made(*lines, devices=devices)
    return Run(Experiment(**tables), run.summary, None, _lines=run.lines, _devices=devices)


def chosen(names, groups):
    """At the end, device by device: the cohort, and the hidden group."""
    truth = [line(0.0, "hidden_group", group, node=n) for n, group in enumerate(groups)]
    return truth + [line(90.0, "chosen", {"name": c, "times": 1.0}, node=n) for n, c in enumerate(names)]


# -------------------------------------------------------------------------------------- who stands above whom


def test_levels_from_the_cloud_downward_with_what_isnt_a_default():
    tables = {"users": {"planner": "fill"}, "cohorts": {"clients": 12}, "edges": {"go_on": False}}
    told = describe_stack("fedyogi", {"server_lr": 0.5, "clients": 7}, [*tables], tables)
    assert [(level.name, level.rule, dict(level.settings)) for level in told] == [
        ("cloud", "fedyogi", {"server_lr": 0.5}),  # how many take part, cohorts say
        ("cohorts", "auxo", {"clients": 12}),
        ("edges", "hierfl", {"go_on": False}),
        ("users", "shufflefl", {"planner": "Fill"}),
    ]


def test_an_old_name_is_described_as_the_stack_that_it_is():
    told = describe_stack("auxo", {"cohorts": 3, "inner": {"kind": "heterofl", "rates": [1.0, 0.5]}}, [], {})
    assert [(level.name, level.rule, dict(level.settings)) for level in told] == [
        ("cloud", "fedavg", {}),
        ("cohorts", "auxo", {"clients": 10, "cohorts": 3}),
        ("sizes", "heterofl", {"rates": [1.0, 0.5]}),
    ]


def test_shufflefl_is_users_below_fedavg_wherever_else_it_stands():
    told = describe_stack("shufflefl", {"users": 4, "planner": "fill"}, [], {})
    assert [(level.name, level.rule, dict(level.settings)) for level in told] == [
        ("cloud", "fedavg", {"clients": 4}),
        ("users", "shufflefl", {"planner": "Fill"}),
    ]
    told = describe_stack("shufflefl", {}, ["cohorts", "edges"], {})
    assert [(level.name, level.rule, dict(level.settings)) for level in told] == [
        ("cloud", "fedavg", {}),
        ("cohorts", "auxo", {"clients": 10}),
        ("edges", "fededge", {}),
        ("users", "shufflefl", {"cap": False}),
    ]


@pytest.mark.parametrize("name", ["fededge", "hierfl", "maverick"])
def test_algorithms_of_edges_are_edges_below_fedavg_wherever_else_they_stand(name):
    assert describe_stack(name, {"clients": 3}, [], {}) == [
        Level("cloud", "fedavg", {}),
        Level("edges", name, {"clients": 3}),
    ]
    rules = [(level.name, level.rule) for level in describe_stack(name, {}, ["cohorts", "users"], {})]
    assert rules == [("cloud", "fedavg"), ("cohorts", "auxo"), ("edges", name), ("users", "shufflefl")]
    contrast = describe_stack("fedyogi", {}, ["edges"], {"edges": {"contrast": {"top": 1}}})
    assert [(level.name, level.rule) for level in contrast] == [("cloud", "fedyogi"), ("edges", "maverick")]


def test_ftfa_is_tuned_above_fedavg():
    told = describe_stack("ftfa", {"tune_epochs": 3}, ["users"], {"users": {}})
    assert [(level.name, level.rule, dict(level.settings)) for level in told] == [
        ("cloud", "fedavg", {"clients": 10}),
        ("users", "shufflefl", {}),
        ("tuned", "ftfa", {"epochs": 3}),
    ]
    assert told[1:] == describe_stack("fedavg", {}, ["users", "tuned"], {"tuned": {"epochs": 3}})[1:]


def test_floors_count_who_there_is_and_say_what_became_of_cohorts():
    run = run_of(
        *chosen(["0", "0", "1", "0"], [0, 0, 1, 1]),
        devices=crowd(**PEOPLE),
        layers=["users", "cohorts", "prior"],
        layer={"cohorts": {"clients": 2}},
        train={"lr": 0.5, "steps": 3},
    )
    ends = "3 devices in cohort 0, 1 device in cohort 1"
    assert [(f.name, f.count, f.told, f.stands, f.shares) for f in floors.read_floors(run)] == [
        ("cloud", 1, "fedavg", True, ()),
        ("cohorts", 2, f"auxo: 2 users a round; in the end {ends}", True, (3, 1)),
        ("users", 2, "shufflefl", True, ()),
        ("devices", 4, "lr = 0.5, batch = 10, steps = 3", True, ()),
        ("prior", None, "as by default", False, ()),
    ]  # fmt: skip
    plain = run_of(devices=crowd(tiers={"cloud": 4}))
    assert floors.read_floors(plain) == []  # a cloud above its devices
    early = run_of(layers=["users"])  # it has begun, and has no devices.json yet
    assert [(f.name, f.count) for f in floors.read_floors(early)] == [
        ("cloud", 1),
        ("users", None),
        ("devices", None),
    ]


def test_tiers_of_other_algorithms_are_drawn_too_and_unknown_code_does_no_harm():
    fededge = run_of(devices=crowd(edge=[0, 0, 1, 1]), algorithm="fededge")
    assert [(f.name, f.count, f.told) for f in floors.read_floors(fededge)][1] == ("edges", 2, "fededge")
    for name in ("share", "maverick"):  # with tiers of its own, and made of layers
        some = run_of(devices=crowd(edge=[0, 0, 1, 1]), algorithm=name, algorithms={name: {"clients": 5}})
        told = {f.name: f.told for f in floors.read_floors(some)}
        assert told["edges"] == f"{name}: 5 devices a round"
        assert "5" not in told["cloud"]
    run = made(devices=crowd(edge=[0, 0, 1, 1]))
    unknown = Run(
        run.experiment.model_copy(update={"algorithm": "mine"}), run.summary, None, _devices=run.devices
    )
    assert [(f.name, f.told) for f in floors.read_floors(unknown)][:2] == [
        ("cloud", "mine"),
        ("edges", "mine"),
    ]


def test_the_picture_has_all_floors_and_a_shade_a_cohort():
    standing = [
        floors.Floor("cloud", 1, ""),
        floors.Floor("cohorts", 2, "", shares=(30, 10)),
        floors.Floor("sizes", None, "", stands=False),
        floors.Floor("users", 5000, ""),
        floors.Floor("devices", 3, ""),
    ]
    svg = draw_stack(standing)
    assert 'aria-label="cloud above 2 cohorts above 5,000 users above 3 devices"' in svg
    assert re.findall(r">([^<>]+)</text>", svg) == ["cloud", "2 cohorts", "users", "3 devices"]
    assert svg.count("<path d=") == 2 + 8 + 3 + 8  # a line up from each but the cloud, and shoulders of users
    shades = re.findall(r'rx="8" fill="(#\w+)"', svg)
    assert len(set(shades)) == 2
    heads = re.findall(r'<circle[^>]*fill="(#\w+)"', svg)
    assert [heads.count(shade) for shade in shades] == [6, 2]  # by 30 to 10 devices, one each at least


@pytest.mark.parametrize(
    ("count", "weights", "places"),
    [
        (8, [30, 10], [6, 2]),  # 1 + 6 * 3/4 = 5.5 and 2.5: the larger remainder first, alike here
        (3, [100, 1, 1], [1, 1, 1]),
        (2, [1, 1, 1], [1, 1, 0]),
        (7, [0, 0], [4, 3]),  # nobody chose: alike
    ],
)
def test_places_are_shared_out(count, weights, places):
    assert share_out(count, weights) == places


def test_a_page_of_a_stack_has_its_picture_and_its_parts_sentences():
    moved, split = (
        line(1.0, "rows_moved", 8, group=5),
        {"into": ["0", "1"], "round": 2, "groups": 2, "sizes": [2, 2]},
    )
    rounds = [line(1.0, "cohort", {"participants": 4}, group="")]
    run = run_of(
        moved,
        *rounds,
        line(2.0, "split", split, group=""),
        devices=crowd(**PEOPLE),
        layers=["users", "cohorts"],
    )
    assert list_deeds(compared(run)) == [
        (
            "fedavg",
            "Cohorts split once, after 2 rounds, into 2, and trained once in all. "
            "8 rows moved among the devices of 1 user, in 1 of 1 plan, made at once.",
        )
    ]
    page = render(compared(run), [])
    assert ">Who stands above whom</h2>" in page
    assert "<dt>2 users</dt><dd>shufflefl</dd>" in page
    assert "For a few kinds of users" in page
    assert "For users with several devices" in page
    assert "Who stands above whom" not in render(compared(made()), [])


def test_runs_that_differ_in_layers_are_of_one_crowd_and_have_names():
    plain, stack = run_of(), run_of(layers=["users", "cohorts"], layer={"cohorts": {"clients": 2}})
    assert is_one_federation(compared(plain, stack))
    assert not is_one_federation(compared(plain, run_of(model={"name": "linear"})))
    assert name_runs([plain, stack]) == ["fedavg", "users+cohorts+fedavg"]


# ---------------------------------------------------------------------------------------------- notes by path


def test_what_edges_note_of_one_cohort_stays_apart():
    """Four people an edge would be too few: six devices, each somebody's own, are judged at their edge."""
    where = small((5,) * 12, edges=2)
    cohorts = {"clients": 2, "cohorts": 2, "force": (2,), "first_split": 1}
    made_ = stacked("fedavg", LOCAL, edges={"go_on": False}, cohorts=cohorts)
    sim = finished(where, place_judge(guard(made_, Median()), where.fleet), rounds=4, plan=LOOP)
    groups = {r["group"] for r in sim.records if r["metric"] == "guarded"}
    first, *others = sim.topology.members("edge")
    assert {first, *others} <= groups  # before the split
    assert len(groups) > 2
    assert groups - {first, *others} <= {f"edge {e} / {cohort}" for e in (0, 1) for cohort in "01"}


def test_numbers_of_edges_and_of_cohorts_have_figures_of_their_own():
    records = [
        line(1.0, "size", 1.0, group="0"),
        line(2.0, "size", 2.0, group="edge 1 / 0"),
        line(3.0, "size", 3.0, group="edge 0 / 0"),
        line(4.0, "mixed", 4.0, group=5),
    ]
    run = made(*records, devices=crowd())
    assert note_figures.list_tiers(run) == ["", "edge"]
    assert set(named(note_figures.draw_numbers(run))) == {"0", "edge 1 / 0", "edge 0 / 0"}
    assert set(named(note_figures.draw_numbers(run, "edge"))) == {"edge 1 / 0", "edge 0 / 0"}
    assert note_figures.draw_numbers(run, "") is None  # always the same
    assert note_figures.list_steady(run, "") == {"size": 1.0}
    assert note_figures.list_steady(run, "edge") == {"distance of its model from the cloud's": 4.0}
    titles = [figure.title for figure in draw_all(compared(run))]
    assert "Edges over time" in titles
    alone = made(*records[1:3], devices=crowd())
    assert "Groups over time" in [figure.title for figure in draw_all(compared(alone))]


# ------------------------------------------------------------------------------------------ agreement by user


def test_agreement_by_user_counts_each_once():
    """Eight devices of four users; device 2 chose otherwise than most of its user's."""
    devices = crowd(
        nodes=[*range(8)],
        rows=[[1, 0]] * 8,
        tiers={"cloud": 8},
        user=[0, 0, 0, 0, 1, 2, 3, -1],
        **{key: [1.0] * 8 for key in ("compute", "up", "down", "latency", "memory")},
    )
    lines = chosen(["0", "0", "1", "0", "1", "0", "1", "1"], [0, 0, 0, 0, 1, 0, 1, 1])
    groups = {"groups": {"kind": "permutation", "count": 2, "by": "user"}}
    run = run_of(*lines, devices=devices, data=groups)
    assert owners.measure_owners_agreement(run) == {"user": (1.0, 4, 0)}
    # A user with devices of both groups is of that of most, and is said.
    torn = run_of(
        *chosen(["0"] * 4 + ["1", "0", "1", "1"], [0, 0, 0, 1, 1, 0, 1, 1]), devices=devices, data=groups
    )
    assert owners.measure_owners_agreement(torn) == {"user": (1.0, 4, 1)}
    split = line(20.0, "split", {"into": ["0", "1"], "groups": 2, "sizes": [2, 3]}, group="")
    whole = run_of(*torn.lines, split, devices=devices, data=groups)
    hints = " ".join(figure.hint for figure in draw_all(compared(whole)))
    assert (
        "By user, each counted once by what most of its devices choose: 1.00 over 4 users; "
        "1 user has devices of several hidden groups."
    ) in hints
    # Where groups are of devices, users are no units, unless they answer as one.
    assert owners.measure_owners_agreement(run_of(*lines, devices=devices)) == {}
    layered = {**devices, "tiers": {"cloud": 8, "user": 9}}
    assert owners.measure_owners_agreement(run_of(*lines, devices=layered)).keys() == {"user"}


def test_no_agreement_by_user_where_devices_have_none():
    devices = crowd(**PEOPLE)
    assert owners.measure_owners_agreement(run_of(devices=devices)) == {}
    some = run_of(
        *chosen(["0", "0", "1", "1"], [0, 0, 1, 1])[:-1], devices=devices
    )  # one of them didn't choose
    assert owners.measure_owners_agreement(some) == {}


# --------------------------------------------------------------------------------------- with and without


def scored(seed=1, name="mine", **views):
    lines = [
        line(t, "accuracy_mean", a, view=v.replace("_", "+"))
        for v, ends in views.items()
        for t, a in enumerate(ends)
    ]
    return made(*lines, algorithm=name, seed=seed)


def test_each_serving_layer_stands_beside_the_view_without_it():
    runs = [
        scored(1, "one", all_prior=[0.1, 0.75], all=[0.1, 0.5]),
        scored(2, "one", all_prior=[0.1, 0.25], all=[0.1, 0.5]),
        scored(1, "two", all=[0.1, 0.5]),
    ]
    both = compared(*runs, seeds=[1, 2])
    assert served.list_layers(both) == ["prior"]
    assert served.read_pairs(both, "prior") == [("one", "all", 0.5, 0.5)]  # means over seeds
    figure = served.draw_served(compared(runs[0]), "prior")
    (pair,) = figure.data
    assert (list(pair.x), list(pair.text)) == ([50.0, 75.0], ["without prior", "with prior"])
    assert list(figure.layout.xaxis.range) == [49.0, 76.0]
    near = served.draw_served(compared(scored(a_prior=[0.52], a=[0.5])), "prior")
    assert list(near.layout.xaxis.range) == pytest.approx([46.0, 56.0])  # ten points, so that two look small
    assert "In percentage points: +25.0 (one)." in served.tell_served(compared(runs[0]), "prior")
    assert "What the layer “prior” brings" in [figure.title for figure in draw_all(both)]
    assert served.list_layers(compared(runs[2])) == []
    assert "“all+prior” is “all” with the layer prior" in captions.tell_views(runs[0])


def test_what_is_made_of_the_first_view_stands_beside_it():
    run = scored(1, "one", switch_prior=[0.4], all_prior=[0.4], switch=[0.3], all=[0.1])
    assert served.list_layers(compared(run)) == ["prior", "switch"]
    assert [(p.view, p.without, p.served) for p in served.read_pairs(compared(run), "switch")] == [
        ("all", 0.1, 0.3)
    ]
    assert "“switch” is “all” with the layer switch" in captions.tell_views(run)
    assert find_source("tuned", ["tuned"]) is None


def test_a_plus_alone_is_no_layer():
    run = scored(a_b=[0.5], c=[0.5])  # the view "a+b", and no "a"
    assert served.draw_served(compared(run), "b") is None
    assert find_source("c", ["c"]) is None


def test_of_several_views_each_is_named():
    run = scored(1, "one", a_prior=[0.2], a=[0.1], b_prior=[0.3], b=[0.4])
    names = [trace.name for trace in served.draw_served(compared(run), "prior").data]
    assert names == ["one: a", "one: b"]
    assert "+10.0 (one: a), -10.0 (one: b)" in served.tell_served(compared(run), "prior")


def test_the_judged_view_and_the_one_that_it_serves_share_a_colour():
    run = scored(1, "one", global_prior=[0.2], all=[0.1])
    run = Run(run.experiment, run.summary | {"view": "global+prior"}, None,
              _lines=[*run.lines, line(0.0, "accuracy_mean", 0.3, view="global")])  # fmt: skip
    lines = named(per_device.draw_views(run, "red"))
    assert {name: trace.line.color for name, trace in lines.items() if trace.line.color == "red"}.keys() == {
        "global+prior",
        "global",
    }
    assert lines["global+prior"].line.dash == "solid"
    assert lines["global"].line.dash != "solid"
    assert per_device.read_views(run)["global"] == [Measurement(0, 0.0, 0.3)]


def test_notes_of_a_stack_are_those_of_its_parts():
    run = run_of(layers=["users", "cohorts"])
    found = find_notes()
    assert floors.list_rules(run) == ["fedavg", "auxo", "shufflefl"]
    assert note_figures.read_own(run) == [found["auxo"], found["shufflefl"]]

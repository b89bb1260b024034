"""Every figure of a report: its traces, labels and numbers; absent where a run has nothing to show."""

import csv
import io

import pytest

from potluck.experiment import Comparison, Experiment, Run
from potluck.report import (
    anomalies,
    captions,
    cohorts,
    csv_files,
    curves,
    fleet_figures,
    hierarchy,
    holding_figures,
    note_figures,
    per_device,
    round_timeline,
    tiers,
)
from potluck.report.contents import draw_all


def line(time, metric, value, **whose):
    return {"round": int(time), "time": time, "metric": metric, "value": value, **whose}


def made(*lines, algorithm="fedavg", seed=1, devices=None, end=100.0, of=None, **summary):
    """A finished run with these records; `of`: its experiment."""
    told = {"algorithm": algorithm, "seed": seed, "view": "global", "virtual_seconds": end, "rounds": 10}
    told |= {"accuracy_mean": 0.5, "accuracy_worst10": 0.2, "accuracy_best10": 0.9, "global_accuracy": 0.5}
    told |= {"global_view": "global", "global_models": 1, "global_used": True}
    told |= {"bytes_up": 0.0, "bytes_down": 0.0, "device_seconds": 1.0, "finished": "now", "remarks": []}
    return Run(of or Experiment(), {**told, **summary}, None, _lines=list(lines), _devices=devices)


def compared(*runs, **tables):
    return Comparison(Experiment(**tables), list(runs))


def crowd(**more):
    """Four devices of two edges."""
    tasks = {"barrier": [], "sender": [], "node": [], "began": [], "down": [], "compute": [], "up": [],
             "ended": [], "fate": []}  # fmt: skip
    return {
        "devices": 4,
        "tiers": {"cloud": 4, "edge": 5},
        "nodes": [0, 1, 2, 3],
        "compute": [1.0, 2.0, 10.0, 100.0],
        "up": [4e6, 3e6, 2e6, 1e6],
        "down": [8e6] * 4,
        "latency": [0.1] * 4,
        "memory": [1e9] * 4,
        "rows": [[4, 0], [0, 9], [1, 0], [0, 1]],
        "rows_at_end": None,
        "tasks": tasks,
        **more,
    }


def rounds(*legs):
    """Tasks as (barrier, node, began, down, compute, up, ended, fate)."""
    names = ("barrier", "node", "began", "down", "compute", "up", "ended", "fate")
    columns = zip(*legs, strict=True)
    return {"tasks": {**dict(zip(names, map(list, columns), strict=True)), "sender": [4] * len(legs)}}


def named(figure):
    return {trace.name: trace for trace in figure.data}


def axes(figure):
    return figure.layout.xaxis.title.text, figure.layout.yaxis.title.text


# ------------------------------------------------------------------------------------------------- the race


def test_time_to_target_has_a_bar_for_those_that_got_there_and_a_dot_a_seed():
    def at(when, seed, algorithm):
        return made(
            line(0.0, "accuracy_mean", 0.1, view="global"),
            line(when, "accuracy_mean", 0.9, view="global"),
            algorithm=algorithm,
            seed=seed,
        )

    slow = made(line(0.0, "accuracy_mean", 0.1, view="global"), algorithm="slow")
    race = compared(at(10.0, 1, "fast"), at(30.0, 2, "fast"), slow, evaluate={"target": 0.6}, seeds=[1, 2])
    figure = curves.draw_time_to_target(race)
    assert axes(figure) == ("virtual time to 60 % (seconds)", "")
    bars = named(figure)
    assert (list(bars["fast"].x), bars["fast"].text) == ([20.0], (" 20 s",))  # (10 + 30) / 2
    assert list(bars["fast, each seed"].x) == [10.0, 30.0]
    assert (list(bars["slow"].x), bars["slow"].text) == ([0.0], (" not reached",))
    assert curves.draw_time_to_target(compared(slow, evaluate={"target": 0.6})) is None
    late = compared(at(110.0, 1, "late"), evaluate={"target": 0.6})  # "1 min 50 s" is longer than "20 s"
    assert curves.draw_time_to_target(late).layout.xaxis.range[1] > 1.3 * 110


def test_devices_in_the_order_of_their_accuracy_without_attackers():
    scores = [0.9, 0.1, 0.5, 0.0]
    old = [line(1.0, "accuracy", 0.0, node=n, view="global") for n in range(4)]
    new = [line(2.0, "accuracy", a, node=n, view="global") for n, a in enumerate(scores)]
    other = [line(2.0, "accuracy", 0.3, node=n, view="personal") for n in range(4)]
    run = made(line(0.0, "attackers", [3]), *old, *new, *other)
    assert per_device.read_accuracies(run) == {0: 0.9, 1: 0.1, 2: 0.5}
    figure = per_device.draw_devices(compared(run))
    (curve,) = figure.data
    assert (list(curve.x), list(curve.y)) == ([0, 50, 100], pytest.approx([10, 50, 90]))
    assert [a.text for a in figure.layout.annotations] == ["worst 10 %", "best 10 %"]
    assert axes(figure)[0].startswith("devices, worst served first")
    assert per_device.draw_devices(compared(made())) is None


def test_the_mean_over_seeds_of_different_panels():
    def run(seed, *scores):
        return made(
            *(line(1.0, "accuracy", a, node=n, view="global") for n, a in enumerate(scores)), seed=seed
        )

    (curve,) = per_device.draw_devices(compared(run(1, 0.2, 0.4), run(2, 0.0, 0.1, 0.6))).data
    assert list(curve.y) == pytest.approx([10, 50])  # worst of both: 20 and 0; best: 40 and 60


def test_views_over_time():
    records = [line(t, "accuracy_mean", a, view=v) for t, v, a in ((1.0, "own", 0.2), (1.0, "global", 0.1))]
    figure = per_device.draw_views(made(*records, line(2.0, "accuracy_mean", 0.6, view="own")), "#000000")
    assert {name: list(t.y) for name, t in named(figure).items()} == {
        "own": pytest.approx([20, 60]),
        "global": pytest.approx([10]),
    }
    assert axes(figure) == ("virtual time (seconds)", "mean accuracy over devices (%)")
    assert per_device.draw_views(made(records[0]), "#000000") is None
    assert [trace.line.color == "#000000" for trace in figure.data] == [False, True]  # judged by `global`
    alike = [line(1.0, "accuracy_mean", 0.5, view=view) for view in ("own", "global")]
    assert per_device.draw_views(made(*alike), "#000000") is None


def test_a_view_has_one_colour_inside_every_algorithm():
    def drawn(*views):
        records = [line(1.0, "accuracy_mean", n / 10, view=view) for n, view in enumerate(views)]
        return named(per_device.draw_views(made(*records, view=views[0]), "#000000"))

    three, two = drawn("personal", "edge", "global"), drawn("own", "global")
    assert three["global"].line == two["global"].line != three["edge"].line


# ------------------------------------------------------------------------------------------------ the crowd


def test_the_fleet_on_log_axes_coloured_by_edge():
    figure = fleet_figures.draw_speeds(made(devices=crowd(edge=[0, 0, 1, 1])))
    dots = named(figure)
    assert set(dots) == {"edge 0", "edge 1"}
    assert (list(dots["edge 1"].x), list(dots["edge 1"].y)) == ([10.0, 100.0], [2.0, 1.0])  # ms, Mbit/s
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", None)  # 1 to 100, and 1 to 4
    assert {"3", "10", "30", "100"} <= set(figure.layout.xaxis.ticktext)
    assert "2" not in figure.layout.xaxis.ticktext
    assert axes(figure) == ("compute (ms a sample; right is slower)", "upload (Mbit/s; down is slower)")
    assert fleet_figures.draw_speeds(made()) is None


def test_the_fleet_coloured_by_tiers_that_were_noted():
    records = [
        line(1.0, "tier", {"tier": 0, "why": "measured"}, group=0),
        line(1.0, "tier", {"tier": 1, "why": "measured"}, group=3),
        line(5.0, "tier", {"tier": 1, "from": 0, "why": "late"}, group=0),
        line(6.0, "tier", 1),  # a lane's remark, not about a device
    ]
    run = made(*records, devices=crowd(edge=[0, 0, 1, 1]))
    assert tiers.find_last_tiers(run) == {0: "1", 3: "1"}
    drawn = fleet_figures.draw_by_tier(run)
    assert set(named(drawn)) == {"tier 1 (2 devices)", "no tier (2 devices)"}
    panels = [axis.title.text for axis in drawn.select_xaxes()]
    assert panels == ["compute (ms a sample)", "upload (Mbit/s)", "rows"]  # all have the same memory
    assert [list(trace.x) for trace in drawn.data if trace.name == "tier 1 (2 devices)"] == [
        [1.0, 100.0],
        [4.0, 1.0],
        [4, 1],
    ]
    assert set(named(fleet_figures.draw_speeds(run))) == {"edge 0", "edge 1"}
    assert fleet_figures.draw_by_tier(made(devices=crowd())) is None
    steps = named(tiers.draw_sizes(run, "tier"))
    assert (list(steps["tier 0"].x), list(steps["tier 0"].y)) == ([1.0, 5.0, 100.0], [1, 0, 0])
    assert list(steps["tier 1"].y) == [1, 2, 2]
    assert tiers.draw_sizes(made(devices=crowd()), "tier") is None
    assert tiers.draw_sizes(made(*records[:1]), "tier") is None  # nobody was moved
    listed = made(line(1.0, "tier", [0, 2], group="fast"), devices=crowd())
    assert tiers.find_last_tiers(listed) == {0: "fast", 2: "fast"}


def test_who_holds_what_by_device_and_class():
    figure = holding_figures.draw_before(made(devices=crowd()))
    (heat,) = figure.data
    assert list(heat.y) == ["device 0", "device 2", "device 1", "device 3"]  # by main class, then by rows
    assert [list(row) for row in heat.z] == [[4, 0], [1, 0], [0, 9], [0, 1]]
    assert axes(figure) == ("class", "device")
    assert holding_figures.draw_before_and_after(made(devices=crowd())) is None


def test_rows_that_moved_are_shown_on_one_scale():
    run = made(devices=crowd(rows=[[4, 0], [0, 4]], rows_at_end=[[2, 2], [2, 2]], nodes=[0, 1]))
    figure = holding_figures.draw_before_and_after(run)
    first, last = figure.data
    assert (first.name, last.name) == ("at first", "at the end")
    assert (first.zmax, last.zmax) == (4, 4)
    assert [list(row) for row in last.z] == [[2, 2], [2, 2]]
    # Everybody's mix is half and half: each held one class (0.5 * (0.5 + 0.5) apart), then both (0).
    assert holding_figures.measure_skews(run) == (0.5, 0.0)


# ------------------------------------------------------------------------------------------ lives of groups


def test_a_tree_of_cohorts_with_who_chose_them():
    split = {"into": ["0", "1"], "groups": 2, "sizes": [15, 14]}
    again = {"sizes": {"1.0": 5, "1.1": 9}, "groups": 3}
    chosen = [
        line(90.0, "chosen", {"name": name, "times": 3.0}, node=n) for n, name in enumerate(["0", "0", "1.1"])
    ]
    truth = [line(0.0, "hidden_group", g, node=n) for n, g in enumerate([0, 0, 1])]
    run = made(*truth, line(20.0, "split", split, group=""), line(60.0, "split", again, group="1"), *chosen)
    assert [(b.name, b.parent, b.born, b.size) for b in cohorts.read_branches(run).values()] == [
        ("all", None, 0.0, None),
        ("0", "all", 20.0, 15),
        ("1", "all", 20.0, 14),
        ("1.0", "1", 60.0, 5),
        ("1.1", "1", 60.0, 9),
    ]
    figure = cohorts.draw_tree(run)
    lives = named(figure)
    assert (list(lives["cohort all"].x)) == [0.0, 20.0]
    assert list(lives["cohort 1"].x) == [20.0, 20.0, 60.0]  # from its parent's line, then along its own
    assert list(lives["cohort 1.1"].x) == [60.0, 60.0, 100.0]
    texts = [a.text for a in figure.layout.annotations]
    assert texts == [
        "cohort 0: 2 devices (2 of hidden group 0)",
        "cohort 1.0: nobody chooses it",
        "cohort 1.1: 1 devices (1 of hidden group 1)",
    ]
    assert axes(figure)[0] == "virtual time (seconds)"
    assert cohorts.draw_tree(made()) is None


def choosing(names, groups, times, at=90.0):
    """Records of devices that chose these cohorts."""
    truth = [line(0.0, "hidden_group", g, node=n) for n, g in enumerate(groups)]
    told = zip(names, times, strict=True)
    return truth + [line(at, "chosen", {"name": n, "times": t}, node=i) for i, (n, t) in enumerate(told)]


def test_the_rand_index_says_over_whom_it_is():
    # Device 2, of the first group, was never seen and would use the other group's cohort.
    run = made(*choosing(["0", "0", "1", "1", "1", "1"], [0, 0, 0, 1, 1, 1], [1.0, 2.0, 0.0, 1.0, 1.0, 5.0]))
    assert cohorts.measure_final_agreement(run, seen=True) == (1.0, 5)
    # All six: pairs together in both 4; in groups 6, in cohorts 7, of 15. By chance 6 * 7 / 15 = 2.8, and at
    # most (6 + 7) / 2 = 6.5, so (4 - 2.8) / (6.5 - 2.8).
    index, devices = cohorts.measure_final_agreement(run, seen=False)
    assert index == pytest.approx(1.2 / 3.7)
    assert devices == 6
    assert (cohorts.count_seen(run), cohorts.count_evaluated(run)) == (5.0, 6.0)
    split = line(20.0, "split", {"into": ["0", "1"], "groups": 2, "sizes": [2, 3]}, group="")
    hints = " ".join(figure.hint for figure in draw_all(compared(made(*run.lines, split, algorithm="auxo"))))
    assert "by chance) of 1.00 over the 5 devices ever seen and of 0.32 over all 6 evaluated; who" in hints


def test_more_cohorts_than_groups_cant_score_1_however_well_they_fit():
    names = [f"{i // 2}" for i in range(8)]  # four cohorts of two devices, each of one group
    run = made(*choosing(names, [0] * 4 + [1] * 4, [1.0] * 8))
    # Together in both 4, in groups 12, in cohorts 4, of 28: (4 - 12 / 7) / (8 - 12 / 7).
    assert cohorts.measure_final_agreement(run, seen=True).rand == pytest.approx(16 / 44)


@pytest.mark.parametrize(
    ("names", "groups", "times"),
    [
        ([""] * 4, [0, 0, 1, 1], [3.0] * 4),  # before the first split
        ([""] * 4, [0, 0, 1, 1], [5.0, 0.0, 0.0, 0.0]),  # with one device it would read 1
        (["0", "0", "1", "1"], [0, 0, 1, 1], [5.0, 0.0, 0.0, 0.0]),
        (["0", "0", "1", "1"], [0, 0, 1, 1], [0.0] * 4),  # nobody was seen
        (["0", "1", "1", "1"], [0, 0, 0, 0], [1.0] * 4),  # there is one group
    ],
)
def test_no_rand_index_where_it_would_be_an_artefact(names, groups, times):
    run = made(*choosing(names, groups, times))
    assert cohorts.measure_final_agreement(run, seen=True) is None
    assert cohorts.trace_agreement(run, seen=True) == []


def test_no_rand_index_of_some_devices_alone():
    """Of rules that sort devices only those choose that aren't sorted yet."""
    run = made(*choosing(["0", "0", "1", "1"], [0, 0, 1, 1], [0.0] * 4)[:-1])
    assert cohorts.measure_final_agreement(run, seen=False) is None


def test_whatever_was_noted_of_groups():
    records = [
        line(1.0, "cohort", {"participants": 3, "why": "text"}, group="0"),
        line(2.0, "cohort", {"participants": 5}, group="0"),
        line(2.0, "chose", [7, 8, 9], group=6),
        line(3.0, "chose", [7], group=6),
        line(2.0, "weight", 0.5, group="0"),
        line(3.0, "weight", 0.5, group="1"),
        line(2.0, "bytes_up", 100.0, group="device"),  # a counter: not a group's
        line(2.0, "alone", 1.0),
    ]
    figure = note_figures.draw_numbers(made(*records, devices=crowd()))
    lines = named(figure)
    assert set(lines) == {"0", "edge 1"}  # node 6 is the second edge
    assert list(lines["0"].y) == [3, 5]
    assert list(lines["edge 1"].y) == [3, 1]  # devices
    assert [a.text for a in figure.layout.annotations] == [
        "devices that took part in its round",
        "devices that chose its model",
    ]
    assert lines["edge 1"].hovertemplate == "edge 1, devices that chose its model: %{y:.4g}<extra></extra>"
    assert note_figures.list_steady(made(*records)) == {"weight": 0.5}
    assert note_figures.count_more(made(*records)) == 0
    assert note_figures.draw_numbers(made(*records[-4:])) is None
    assert "without a panel: weight (0.5)." in captions.tell_numbers(made(*records))


def test_a_note_of_ones_own_keeps_its_name():
    figure = note_figures.draw_numbers(made(*(line(t, "my_note", t, group="a") for t in (1.0, 2.0))))
    assert [a.text for a in figure.layout.annotations] == ["my note"]


def test_groups_that_have_a_number_alone_are_called_what_they_are():
    records = [line(t, "chose", [0] * round(t), group=g) for t in (1.0, 2.0) for g in (0, 1)]
    assert set(named(note_figures.draw_numbers(made(*records, of=Experiment(algorithm="ifca"))))) == {
        "model 0",
        "model 1",
    }
    parts = [line(t, "cohort", {"wild": t}, group=g) for t in (1.0, 2.0) for g in ("", "0", "0.1")]
    drawn = named(note_figures.draw_numbers(made(*parts, of=Experiment(algorithm="auxo"))))
    assert list(drawn) == ["all", "cohort 0", "cohort 0.1"]
    assert drawn["all"].line.color == "#808080"  # as its branch of the tree


def test_numbers_that_differ_by_rounding_have_no_panel():
    steady = [line(t, "reward", 1 + 1e-8 * t, group="a") for t in (1.0, 2.0)]
    changes = [line(t, "loss", t, group="a") for t in (1.0, 2.0)]
    figure = note_figures.draw_numbers(made(*steady, *changes))
    assert [a.text for a in figure.layout.annotations] == ["loss"]
    assert "Always the same, so without a panel: reward (1)." in captions.tell_numbers(made(*steady))
    tiny = [line(t, "reward", 1e-6, group="a") for t in (1.0, 2.0)]
    assert "without a panel: reward (about 0)." in captions.tell_numbers(made(*tiny))
    zero = [line(t, "strays", 0, group="a") for t in (1.0, 2.0)]
    assert note_figures.list_steady(made(*zero)) == {"strays": 0}


def test_groups_are_listed_by_number_and_no_two_look_alike():
    records = [line(1.0, "loss", float(n), group=f"g{n}") for n in (10, 2, 0, 1, 3, 4, 5, 6, 7)]
    drawn = note_figures.draw_numbers(made(*records)).data
    assert [trace.name for trace in drawn] == ["g0", "g1", "g2", "g3", "g4", "g5", "g6", "g7", "g10"]
    assert len({(trace.line.color, trace.line.dash) for trace in drawn}) == 9  # of eight colours


def test_a_group_has_one_colour_whoever_else_is_there():
    def shade(name, *others):
        records = [line(1.0, "loss", float(n), group=each) for n, each in enumerate((name, *others))]
        return named(note_figures.draw_numbers(made(*records)))[name].line.color

    assert shade("class 6", "class 0", "class 1") == shade("class 6", "class 2", "class 5", "class 9")
    assert shade("class 6", "class 0") != shade("class 5", "class 0")
    assert shade("cohort 1", "cohort 00", "cohort 01") != shade("cohort 01", "cohort 00", "cohort 1")


def test_of_many_groups_the_middle_and_the_ends():
    records = [line(1.0, "loss", float(n), group=f"g{n}") for n in range(note_figures.LINES + 1)]
    lines = named(note_figures.draw_numbers(made(*records)))
    assert [list(lines[f"{which} of 13 groups"].y) for which in ("least", "middle", "greatest")] == [
        [0],
        [6],
        [12],
    ]


def test_class_counters_as_shares_of_the_most_trained():
    figure = note_figures.draw_counts(
        made(line(1.0, "updates", [1, 2, 0]), line(2.0, "updates", [4, 2, 1])), "updates", "class"
    )
    (heat,) = figure.data
    assert [list(row) for row in heat.z] == [[0.5, 1.0], [1.0, 0.5], [0.0, 0.25]]
    assert [list(row) for row in heat.customdata] == [[1, 4], [2, 2], [0, 1]]
    assert axes(figure) == ("virtual time (seconds)", "class")
    assert note_figures.draw_counts(made(), "updates", "class") is None


def test_edges_rounds_on_a_time_line():
    records = [line(t, "local_rounds", n, group=g) for t, n, g in ((3.0, 1, 5), (5.0, 2, 6), (9.0, 4, 5))]
    figure = hierarchy.draw_stretches(made(*records, devices=crowd()), "local_rounds")
    (bars,) = figure.data
    assert list(zip(bars.y, bars.base, bars.x, bars.text, strict=True)) == [
        ("edge 0", 0.0, 3.0, "1"),
        ("edge 1", 0.0, 5.0, "2"),
        ("edge 0", 3.0, 6.0, "4"),  # since its last model
    ]
    assert axes(figure)[0] == "virtual time (seconds)"
    assert hierarchy.draw_stretches(made(), "local_rounds") is None
    (old,) = hierarchy.draw_stretches(
        made(*records), "local_rounds"
    ).data  # without a summary of devices nodes have no names
    assert list(old.y) == ["5", "6", "5"]


def test_who_was_judged_and_whether_that_was_right():
    records = [
        line(1.0, "guarded", {"judged": [0, 1, 2, 3]}, group=4),
        line(1.0, "anomalous", [1, 2], group=4),
        line(2.0, "guarded", {"judged": [0, 1]}, group=4),
    ]
    figure = anomalies.draw_judgements(made(line(0.0, "attackers", [1, 3]), *records))
    marks = named(figure)
    assert {name: (list(t.x), list(t.y)) for name, t in marks.items()} == {
        "refused, rightly (1)": ([1.0], [1]),
        "refused, wrongly (1)": ([1.0], [2]),
        "missed (2)": ([1.0, 2.0], [3, 1]),
    }
    assert axes(figure) == ("virtual time (seconds)", "device")
    nobody = made(*records)  # no device was told to lie
    assert set(named(anomalies.draw_judgements(nobody))) == {"refused, wrongly (2)"}
    assert captions.tell_judgements(nobody).endswith("nobody lies, so all 2 refusals are false alarms.")
    hidden = Experiment(fleet={"attack": {"kind": "sign_flip", "share": 0.5}})
    unknown = Run(hidden, nobody.summary, None, _lines=nobody.lines)
    assert set(named(anomalies.draw_judgements(unknown))) == {"refused (2)"}
    assert captions.tell_judgements(unknown).endswith("Who really was at fault isn't known.")
    assert anomalies.draw_judgements(made()) is None


# ------------------------------------------------------------------------------------------------- the costs


def test_traffic_by_tier_is_the_mean_over_seeds():
    def run(seed, up):
        return made(
            line(1.0, "bytes_up", up, group="device"), line(1.0, "bytes_down", 0.0, group="cloud"), seed=seed
        )

    figure = hierarchy.draw_traffic(compared(run(1, 1e6), run(2, 3e6), seeds=[1, 2]))
    assert {name: list(t.x) for name, t in named(figure).items()} == {
        "device, up": [2.0]
    }  # zeros are left out
    assert axes(figure)[0] == "traffic (MB)"
    assert hierarchy.draw_traffic(compared(made())) is None


def test_the_anatomy_of_a_round_shows_who_waits_for_whom():
    legs = [
        (0, 1, 10.0, 1.0, 2.0, 1.0, 14.0, ""),
        (0, 2, 12.0, 1.0, 6.0, 1.0, 20.0, ""),  # it was busy until 12
        (0, 3, 10.0, 5.0, 50.0, 5.0, 21.0, "late"),
    ]
    figure = round_timeline.draw_round(made(devices=crowd(**rounds(*legs))))
    bars = named(figure)
    # The longest first: 1 took 4 of 11 seconds and then waited for the deadline at 21; 3 was called off then.
    assert list(bars["train"].y) == ["device 3", "device 2", "device 1"]
    parts = {name: list(trace.x) for name, trace in bars.items()}
    assert parts == {
        "queued": [0, 2, 0],
        "download": [0, 1, 1],
        "train": [0, 6, 2],
        "upload": [0, 1, 1],
        "wait": [0, 1, 7],
        "called off": [11, 0, 0],
    }
    assert bars["called off"].text == ("late", "", "")
    assert axes(figure)[0] == "virtual time of the round (seconds)"
    assert round_timeline.has_rounds(made(devices=crowd(**rounds(*legs))))
    assert round_timeline.draw_round(made()) is None
    assert round_timeline.draw_round(made(devices=crowd())) is None


def test_without_rounds_nobody_waits():
    legs = [(i, 1, float(i), 0.25, 0.5, 0.25, i + 1.0, "") for i in range(3)]
    run = made(devices=crowd(**rounds(*legs)))
    assert not round_timeline.has_rounds(run)
    bars = named(round_timeline.draw_round(run))
    assert set(bars) == {"download", "train", "upload"}
    assert list(bars["train"].y) == ["device 1", "device 1 (2)", "device 1 (3)"]


def test_a_round_of_median_length_that_trains_is_chosen():
    probes = [(0, n, 0.0, 1.0, 0.1, 1.0, 2.1, "") for n in (1, 2, 3)]  # of more devices, but hardly any work
    longer = [
        (b, n, 10.0 * b, 1.0, 2.0 * b, 1.0, 10.0 * b + 2 + 2 * b, "") for b in (2, 3, 4) for n in (1, 2)
    ]
    bars = named(round_timeline.draw_round(made(devices=crowd(**rounds(*probes, *longer)))))
    assert list(bars["train"].x) == [6.0, 6.0]  # of 4, 6 and 8


def test_the_caption_of_a_round_says_how_many_tasks_are_drawn_and_what_a_number_behind_a_device_means():
    def tell(*nodes):
        run = made(devices=crowd(**rounds(*((0, n, 0.0, 1.0, 2.0, 1.0, 4.0 + n, "") for n in nodes))))
        return captions.tell_round(run, round_timeline.draw_round(run))

    assert tell(1, 2, 3).endswith("This round has the median length.")
    assert tell(1, 2, 2).endswith("median length. “(2)” is a device's second task in it.")
    assert tell(*range(50)).endswith("median length. 40 of its 50 tasks are drawn.")


def test_rounds_that_are_known_in_part_are_left_out(monkeypatch):
    monkeypatch.setattr(round_timeline, "KEPT", 3)
    legs = [
        (0, 1, 0.0, 1.0, 1.0, 1.0, 3.0, ""),  # others of this round may have been dropped
        (1, 1, 3.0, 1.0, 2.0, 1.0, 7.0, ""),
        (1, 2, 3.0, 1.0, 2.0, 1.0, 7.0, ""),
    ]
    assert set(round_timeline.read_last_tasks(made(devices=crowd(**rounds(*legs)))).barrier) == {1}


def test_where_the_time_of_a_mean_task_goes():
    legs = [(0, 1, 0.0, 1.0, 2.0, 1.0, 4.0, ""), (0, 2, 0.0, 1.0, 6.0, 1.0, 8.0, "")]
    figure = round_timeline.draw_shares(compared(made(devices=crowd(**rounds(*legs))), made(algorithm="old")))
    parts = {name: list(trace.x) for name, trace in named(figure).items()}
    assert parts == {"download": [1.0], "train": [4.0], "upload": [1.0], "wait": [2.0]}  # (4 - 0) / 2 waits
    assert axes(figure)[0] == "virtual time of a task (seconds)"
    assert round_timeline.draw_shares(compared(made())) is None


# ----------------------------------------------------------------------------------------- which, and as CSV


def test_figures_that_have_nothing_to_show_are_absent():
    assert [each.title for each in draw_all(compared(made()))] == ["Who is served well"]
    legs = [(0, 1, 0.0, 1.0, 2.0, 1.0, 4.0, ""), (0, 2, 0.0, 1.0, 6.0, 1.0, 8.0, "")]
    two = compared(
        made(devices=crowd(**rounds(*legs))), made(line(1.0, "updates", [1, 2]), algorithm="classter")
    )
    titles = [each.title for each in draw_all(two)]
    assert titles == [
        "Who is served well",
        "The fleet",
        "Who holds what",
        "How often classes were trained",
        "Where a task's time goes",
        "The anatomy of a round",
    ]
    assert [each.group for each in draw_all(two)] == [
        *("The race", "The crowd", "The crowd", "Inside classter", "What it cost", "What it cost"),
    ]
    assert [each.slug for each in draw_all(two)][-1] == "the-anatomy-of-a-round-fedavg"
    assert all(each.hint.startswith("Look ") for each in draw_all(two))


def test_a_sheet_holds_what_is_drawn():
    run = made(line(3.0, "local_rounds", 2, group=5), devices=crowd())
    rows = list(
        csv.reader(io.StringIO(csv_files.write_figure(hierarchy.draw_stretches(run, "local_rounds"))))
    )
    assert rows == [
        ["trace", "virtual time (seconds)", "y", "from", "value", "text"],
        ["rounds of its own", "3.0", "edge 0", "0.0", "", "2"],
    ]
    heat = list(
        csv.reader(io.StringIO(csv_files.write_figure(holding_figures.draw_before(made(devices=crowd())))))
    )
    assert heat[0][1:3] == ["class", "device"]
    assert heat[1] == ["at first", "0", "device 0", "", "4", ""]
    assert len(heat) == 1 + 4 * 2


def test_csv_files_and_the_table_in_a_folder(tmp_path):
    race = compared(made(line(1.0, "bytes_up", 2e6, group="device")))
    csv_files.save_all(race, draw_all(race), tmp_path / "new")
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == [
        "table.csv",
        "traffic-by-tier.csv",
        "who-is-served-well.csv",
    ]
    table = list(csv.reader(io.StringIO((tmp_path / "new" / "table.csv").read_text())))
    assert table[0][:2] == ["algorithm", "accuracy"]
    assert table[1][:2] == ["fedavg", "50.0 %"]
    assert (table[0][-1], table[1][-1]) == ("global test of", "the model that all devices use (view global)")

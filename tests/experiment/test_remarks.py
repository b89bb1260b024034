"""What is said of runs that went wrong, and that nothing is said of others."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import potluck
from potluck.algorithms.maverick import PUBLISHED
from potluck.cli import main
from potluck.experiment import Experiment
from potluck.experiment.judged import Judged, JudgedDevice
from potluck.experiment.prepare import resolve_run
from potluck.experiment.remarks import find_remarks

ROOT = Path(__file__).parents[2]
CLASSES = 10
EVEN = np.full(CLASSES, 2)  # 20 test rows of each class alike


def judged(devices=20, labels=EVEN, common=0, model="global", nbytes=1000):
    return Judged({node: JudgedDevice(np.asarray(labels), common, model, nbytes) for node in range(devices)})


def recorded(accuracies, losses=None, devices=20, rounds=None, tasks=100, lost=None, participants=20, **more):
    """A run that is evaluated every 10 s and every round, each device like the mean; `more`: other notes."""
    lines = []
    losses = [2.3, *[2.4] * (len(accuracies) - 1)] if losses is None else losses
    for at, (accuracy, loss) in enumerate(zip(accuracies, losses, strict=True)):
        where = {"round": at if rounds is None else rounds, "time": 10.0 * at}
        for node in range(devices):
            lines.append({**where, "metric": "accuracy", "value": accuracy, "node": node, "view": "global"})
            lines.append({**where, "metric": "loss", "value": loss, "node": node, "view": "global"})
        lines.append({**where, "metric": "accuracy_mean", "value": accuracy, "view": "global"})
    end = {"round": where["round"], "time": where["time"]}
    lines += [
        {**end, "metric": "tasks", "value": tasks},
        {**end, "metric": "participants", "value": participants},
    ]
    lines += [{**end, "metric": "lost", "value": n, "group": why} for why, n in (lost or {}).items()]
    return lines + [{**end, "metric": name, "value": value} for name, value in more.items()]


def kinds(accuracies, losses=None, experiment=None, by=None, **more):
    found = find_remarks(recorded(accuracies, losses, **more), experiment or Experiment(), by or judged())
    return [remark["kind"] for remark in found]


def cause(accuracies, losses=None, experiment=None, by=None, **more):
    (remark,) = find_remarks(recorded(accuracies, losses, **more), experiment or Experiment(), by or judged())
    return remark["cause"]


AT_CHANCE = [0.08, 0.10, 0.11, 0.09, 0.12, 0.10, 0.11, 0.10, 0.09, 0.10, 0.11]
LEARNS = [0.1, 0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.82, 0.83, 0.84, 0.85]
FALLING = [2.3, 1.9, 1.5, 1.2, 1.0, 0.9, 0.8, 0.7, 0.7, 0.6, 0.6]


# -------------------------------------------------------------------------------------------------- chance


def test_a_run_that_learns_gets_no_remark():
    assert kinds(LEARNS, FALLING) == []


def test_a_run_at_chance_says_that_it_learns_nothing():
    # 400 rows of ten classes alike: chance 10 %, standard error sqrt(0.09 / 400) = 1.5 points.
    (remark,) = find_remarks(recorded(AT_CHANCE), Experiment(), judged())
    assert remark["kind"] == "chance"
    ends, same = "accuracy ends at 11.0 %", "10.0 % for always answering the same class"
    assert remark["text"] == f"learns nothing: {ends}, which is chance ({same})"


def test_a_shift_is_not_blamed_on_the_rate():
    """Devices' own models may know their own classes well, and are asked for others."""
    shifted, losses = Experiment(data={"shift": 0.8}), [2.3, *[3.5] * 10]
    (remark,) = find_remarks(recorded(AT_CHANCE, losses), shifted, judged(model=None))
    assert remark["text"].startswith("is no better than chance: accuracy ends at 11.0 % (10.0 % for always")
    assert remark["cause"].startswith("data.shift = 0.8: test rows are of classes that the device doesn't")
    onset = Experiment(data={"shift": {"kind": "onset", "share": 0.5}})
    assert cause(AT_CHANCE, losses, onset, judged(model=None)).startswith("data.shift = 0.5: ")
    common = {"shift": {"kind": "global", "share": 0.8}}
    for table, model in (({"shift": 0.8}, "global"), ({"shift": 0.2}, None), (common, None), ({}, None)):
        told = cause(AT_CHANCE, losses, Experiment(data=table), judged(model=model))
        assert told.startswith("the loss rose"), (table, model)


def test_a_slow_run_that_learns_is_not_accused():
    slow = [0.1] * 6 + [0.11, 0.12, 0.14, 0.15, 0.17]
    assert kinds(slow) == []  # above 13 % at the end
    assert kinds([0.1] * 8 + [0.2] * 3) == []  # late, but learned
    assert (
        kinds([0.1, *[0.2] * 6, *[0.12] * 4]) == []
    )  # below again, but it had learned: no fall of ten points


def test_few_test_rows_leave_more_to_chance():
    few = judged(labels=np.eye(CLASSES, dtype=int)[:2].sum(0))  # 2 rows a device: classes 0 and 1
    assert few.find_chance() == 0.5
    assert few.find_error(0.5) == pytest.approx((0.25 / 40) ** 0.5)
    assert kinds([0.5, 0.6, 0.62, 0.63], by=few) == ["chance"]
    assert kinds([0.5, 0.6, 0.65, 0.67], by=few) == []


def test_chance_is_the_most_frequent_class():
    skewed = judged(labels=[11, *[1] * 9])
    assert skewed.find_chance() == pytest.approx(0.55)
    assert kinds([0.5, *[0.55] * 10], by=skewed) == ["chance"]
    assert kinds([0.1, *[0.55] * 10]) == []


def test_a_model_of_ones_own_may_answer_ones_own_class():
    """Each device knows one class: a model that only knows which is right everywhere, and knows nothing."""
    devices = {n: JudgedDevice(np.eye(CLASSES, dtype=int)[n] * 8 + 1, n, None) for n in range(CLASSES)}
    own, shared = (
        Judged(devices),
        Judged({n: JudgedDevice(t.labels, t.common, "global") for n, t in devices.items()}),
    )
    assert own.find_chance() == pytest.approx(9 / 18)
    assert shared.find_chance() == pytest.approx(0.1)
    at_half = [0.1, *[0.5] * 10]
    assert kinds(at_half, by=own, devices=CLASSES) == ["chance"]
    assert kinds(at_half, by=shared, devices=CLASSES) == []


@pytest.mark.parametrize(
    ("labels", "ends", "why"),
    [
        (np.eye(2, dtype=int)[0] * 30, 1.0, "nearly all that a device is tested on is of one class"),
        ([1, 1], 0.75, "4 test rows are too few to tell"),
    ],
)
def test_where_no_accuracy_is_above_chance_learning_is_not_denied(labels, ends, why):
    by = judged(devices=2, labels=labels)
    (remark,) = find_remarks(recorded([0.5, *[ends] * 10], FALLING, devices=2), Experiment(), by)
    assert remark["kind"] == "chance"
    assert remark["text"].startswith("accuracy tells nothing: it ends at")
    assert remark["cause"].startswith(why)


def test_the_first_tenth_is_left_out():
    assert kinds([0.1, *[0.1] * 9, *[0.5] * 90]) == []
    assert kinds([0.1, *[0.4] * 9, *[0.1] * 91]) == ["chance"]  # what it had for a moment doesn't count


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"lost": {"late": 950}, "tasks": 50}, "950 of 1000 tasks were lost, most of them late; raise the"),
        ({"tasks": 0, "lost": {}}, "nobody was asked to train"),
        ({"rounds": 0}, "no round was over within 1 min 40 s, so the model is as at the start"),
        (
            {"losses": [2.3] * 11},
            "nothing of the 100 tasks that were done within 1 min 40 s changed the model",
        ),
        ({"participants": 2, "losses": [2.3, *[2.4] * 10]}, "only 2 devices ever took part"),
        ({"losses": [2.3, *[3.5] * 10]}, "the loss rose from 2.30 to 3.5: train.lr = 0.1 is too high; lower"),
        ({"losses": [2.3, *[2.2] * 10]}, "it is slow: the loss fell from 2.30 to 2.20"),
        (
            {"losses": [2.3, *[2.2995] * 10]},
            "the loss stays at 2.30: train.lr = 0.1 is too low to tell; raise it",
        ),
        ({"losses": [2.3, *[2.4] * 10]}, "no setting stands out"),
    ],
)
def test_causes_of_learning_nothing(more, told):
    assert cause(AT_CHANCE, **more).startswith(told)


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        (
            {"train": {"privacy": {"sigma": 2.0}}},
            "the noise of train.privacy (sigma = 2, clip = 1) outweighs",
        ),
        (
            {"algorithm": "maverick", "algorithms": {"maverick": {"mu_p": 10.0, "mu_a": 1.0}}},
            "algorithms.maverick.mu_p = 10 outweighs the labels, whose loss counts once; lower it",
        ),
        (
            {"fleet": {"attack": {"kind": "sign_flip", "share": 0.3}}},
            "6 devices attack (fleet.attack.kind = 'sign_flip'), and nobody judges updates; set [robust]",
        ),
        (
            {"fleet": {"attack": {"kind": "sign_flip", "share": 0.3}}, "robust": {"kind": "median"}},
            "6 devices attack (fleet.attack.kind = 'sign_flip'), and the judge of [robust] doesn't stop them",
        ),
    ],
)
def test_causes_that_were_set(tables, told):
    assert cause(AT_CHANCE, experiment=Experiment(**tables), attackers=[0, 1, 2, 3, 4, 5]).startswith(told)


def test_an_algorithm_that_judges_by_itself_is_not_told_that_nobody_does():
    attack = {"kind": "sign_flip", "share": 0.3}

    def told(name, mode, **more):
        tables = {"fleet": {"attack": attack, "edges": 2}, "algorithms": {name: {"mode": mode}}, **more}
        run = resolve_run(Experiment(algorithm=name, **tables))
        return cause(AT_CHANCE, experiment=run, attackers=[0, 1]).partition(", and ")[2]

    for name in ("maverick", "fededge"):
        own = f"the judge of algorithms.{name}.robust doesn't stop them; try another, such as by [robust]"
        assert told(name, "published") == own
        assert told(name, "potluck") == "nobody judges updates; set [robust]"
    # A table of the experiment's takes the place of the algorithm's own.
    theirs = told("maverick", "published", robust={"kind": "median"})
    assert theirs == "the judge of [robust] doesn't stop them"


def test_attackers_who_are_all_refused_are_not_to_blame():
    tables = {"fleet": {"attack": {"kind": "sign_flip", "share": 0.3}}, "robust": {"kind": "median"}}

    def told(refused):
        seen = {"guarded": {"judged": [0, 1, 7]}, "anomalous": refused}
        return cause(AT_CHANCE, experiment=Experiment(**tables), attackers=[0, 1], **seen)

    assert "attack" not in told([0, 1])
    assert "the judge of [robust] doesn't stop them" in told([0, 7])


def test_devices_of_one_class_each_undo_each_other():
    one_each = Judged(
        {
            n: JudgedDevice(np.eye(CLASSES, dtype=int)[n % CLASSES] * 20, n % CLASSES, "global")
            for n in range(20)
        }
    )
    assert cause(AT_CHANCE, by=one_each).startswith("a device knows 1.0 of 10 classes")


# ---------------------------------------------------------------------------------------------- divergence


def test_a_loss_beyond_all_measure_is_divergence():
    wild = [2.3, 5.0, 80.0, 1e3, 1e4, 1e5, 1e5, 1e5, 1e5, 1e5, 1e5]
    (remark,) = find_remarks(recorded([0.1, 0.4, 0.3, *[0.2] * 8], wild), Experiment(), judged())
    assert (remark["kind"], remark["cause"]) == (
        "diverged",
        "train.lr = 0.1 is too high for this model and these data; lower it",
    )
    assert remark["text"] == (
        "diverged: the loss of the middle device rose from 2.30 to 1e+05, accuracy ends at 20.0 %"
    )
    (remark,) = find_remarks(recorded([0.1, 0.1], [2.3, math.nan]), Experiment(), judged())
    assert "is no finite number" in remark["text"]


def test_a_confident_model_that_errs_has_not_diverged():
    assert kinds(LEARNS, [2.3, *[6.0] * 10]) == []
    assert kinds(LEARNS, [2.3, *[60.0] * 10]) == []  # whatever its scale, it knows 85 %


def test_some_devices_that_overfit_are_no_divergence():
    lines = recorded(LEARNS[:6], FALLING[:6])
    for line in lines:
        if line["metric"] == "loss" and line["node"] < 9:  # of 20
            line["value"] = 1e4
    assert find_remarks(lines, Experiment(), judged()) == []


# --------------------------------------------------------------------------------------------------- falls


def test_a_fall_of_ten_points_is_told():
    fall = [*LEARNS, 0.8, 0.77, 0.74]
    (remark,) = find_remarks(recorded(fall), Experiment(), judged())
    assert remark["kind"] == "fell"
    assert remark["text"] == "fell: accuracy had 85.0 % in round 10 and ends at 74.0 %"
    assert kinds([*LEARNS, 0.8, 0.77, 0.76]) == []
    assert kinds([*LEARNS, 0.6, 0.84]) == []  # it came back


def test_a_fall_within_what_few_rows_can_tell_is_none():
    few = judged(devices=2, labels=[1] * CLASSES)  # 20 rows: two accuracies near 90 % differ by 19 points
    assert kinds([0.1, 0.9, 0.85, 0.75], by=few, devices=2) == []
    assert kinds([0.1, 0.9, 0.85, 0.7], by=few, devices=2) == ["fell"]


def test_causes_of_a_fall():
    fall = [*LEARNS, 0.8, 0.77, 0.74]
    change = Experiment(data={"changes": [{"at": 100.0, "kind": "labels"}]})
    assert cause(fall, experiment=change) == "the data changed at 100 s (data.changes)"
    swinging = [0.1, 0.5, 0.8, 0.6, 0.8, 0.6, 0.85, 0.6, 0.8, 0.6]
    assert cause(swinging).startswith("accuracy swings, by 2")
    assert cause(fall, [2.3] * 11 + [3.0] * 3).startswith("the loss rose from 2.30 to 3: train.lr = 0.1")


# ------------------------------------------------------------------------------------------------- groups


def grouped(accuracies, sizes=None):
    """Three groups of ten devices, with models of these sizes; their last accuracies, some devices above."""
    devices, lines = {}, recorded([0.1, 0.4, 0.6, 0.7], devices=0)
    for node in range(30):
        group = node // 10
        devices[node] = JudgedDevice(EVEN, 0, f"tier {group}", (sizes or [1000] * 3)[group])
        own = accuracies[group] + 0.05 * (node % 2)
        lines.append(
            {"round": 3, "time": 30.0, "metric": "accuracy", "value": own, "node": node, "view": "global"}
        )
    return lines, Judged(devices)


def test_a_tier_that_collapses_is_told():
    (remark,) = find_remarks(*_with_settings(grouped([0.9, 0.8, 0.12])))
    assert remark["kind"] == "collapsed"
    assert remark["text"] == "tier 2 collapsed: 14.5 % with its 10 devices, 87.5 % with others"
    assert remark["cause"].startswith(
        "10 of 30 devices use it, and its model isn't small: it was trained for too"
    )
    (remark,) = find_remarks(*_with_settings(grouped([0.9, 0.8, 0.12], [60_000, 8000, 900])))
    assert remark["cause"] == (
        "its model is small: 900 B of parameters, where others have up to 60.0 kB; widen it"
    )


def test_a_model_of_one_device_that_collapses_is_told_in_the_singular():
    lines, found = grouped([0.9, 0.8, 0.05])
    few = {n: device for n, device in found.devices.items() if n < 20 or n == 29}
    (remark,) = find_remarks(lines, Experiment(), Judged(few))
    assert " with its device, " in remark["text"]


def test_a_tier_that_learns_less_has_not_collapsed():
    assert find_remarks(*_with_settings(grouped([0.9, 0.8, 0.5]))) == []
    assert find_remarks(*_with_settings(grouped([0.9, 0.1, 0.5])))[0]["text"].startswith("tier 1 collapsed")


def test_one_device_with_a_bad_model_is_no_group_that_collapsed():
    lines, judged = grouped([0.9, 0.8, 0.6])
    alone = {**judged.devices, 30: JudgedDevice(EVEN, 0, "tier 3", 1000)}
    for node in range(30):  # devices differ widely
        lines[-30 + node]["value"] = 0.3 if node % 3 == 0 else 1.0
    lines.append({"round": 3, "time": 30.0, "metric": "accuracy", "value": 0.2, "node": 30, "view": "global"})
    assert find_remarks(lines, Experiment(), Judged(alone)) == []


def _with_settings(found):
    lines, judged = found
    return lines, Experiment(), judged


# ------------------------------------------------------------------------------------------------ the rest


def test_merges_that_were_undone_are_told():
    lines = [
        *recorded(LEARNS),
        *({"round": 3, "time": 30.0, "metric": "undone", "value": {}} for _ in range(2)),
    ]
    (remark,) = find_remarks(lines, Experiment(), judged())
    assert (remark["kind"], remark["text"]) == (
        "undone",
        "2 merges made numbers NaN or infinite and had to be undone",
    )


def test_nothing_is_said_of_what_was_never_measured():
    assert find_remarks([], Experiment(), judged()) == []
    assert find_remarks(recorded([0.1]), Experiment(), judged()) == []
    assert find_remarks(recorded(AT_CHANCE), Experiment(), Judged({})) == []


# ---------------------------------------------------------------------------------------------- real runs


def maverick(*settings, **algorithm):
    tables = {"data": {"clients": 10}, "fleet": {"edges": 2}, "run": {"executor": "loop"}}
    experiment = Experiment(algorithm="maverick", algorithms={"maverick": algorithm}, **tables)
    return potluck.run(experiment.with_overrides(["evaluate.rounds=1", *settings])).summary["remarks"]


def test_maverick_with_a_contrast_that_outweighs_the_labels_says_that_it_learns_nothing():
    (remark,) = maverick("train.lr=1", "stop.rounds=6", mu_p=10.0, contrast="log")
    assert remark["kind"] == "chance"
    assert remark["text"].startswith("learns nothing: accuracy ends at ")
    assert remark["cause"].startswith("algorithms.maverick.mu_p = 10 outweighs the labels")


@pytest.mark.nightly
def test_so_does_it_with_the_model_that_the_papers_weights_are_for():
    settings = ("model.name=lenet5", "train.lr=0.2", "stop.rounds=8")
    assert [remark["kind"] for remark in maverick(*settings, **PUBLISHED)] == ["chance"]
    assert maverick(*settings) == []
    assert maverick("train.lr=1", "stop.rounds=6") == []


def test_fedavg_in_the_demo_gets_no_remark():
    demo = Experiment.from_file(ROOT / "examples" / "demo.toml")
    assert potluck.run(demo.with_values(algorithm="fedavg")).summary["remarks"] == []


@pytest.mark.nightly
@pytest.mark.parametrize("algorithm", ["classter", "auxo", "maverick", "shufflefl", "fedrac"])
def test_nor_do_the_others_of_the_demo(algorithm):
    demo = Experiment.from_file(ROOT / "examples" / "demo.toml")
    assert potluck.run(demo.with_values(algorithm=algorithm)).summary["remarks"] == []


def test_a_level_that_is_too_small_to_learn_is_told_by_name():
    crowd = Experiment.from_file(ROOT / "examples" / "demo.toml").with_overrides(["stop.seconds=45"])
    crowd = crowd.with_values(algorithm="heterofl")
    assert potluck.run(crowd).summary["remarks"] == []  # clipped gradients: none blows up
    loose = crowd.with_overrides(["algorithms.heterofl.clip=false"])
    (remark,) = potluck.run(loose).summary["remarks"]
    assert remark["text"].startswith("rate 0.0625 collapsed: ")
    assert remark["cause"].startswith("its model is small: ")


def test_a_rate_at_which_nothing_moves_is_told_everywhere(tmp_path, capsys):
    settings = ("--set", "stop.rounds=3", "--set", "run.executor=loop", "--set", "data.clients=5")
    file = tmp_path / "still.toml"
    file.write_text('name = "still"\n[data]\nsource = "synthetic"\nrows = 300\n[train]\nlr = 1e-6\n')
    told = "learns nothing: accuracy ends at"

    def command(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        assert not ended.value.code
        return capsys.readouterr().out

    out = command("run", file, "--out", tmp_path / "one", *settings)
    assert f"! {told}" in out
    assert "Likeliest cause: the loss stays at" in " ".join(out.split())
    assert f"! {told}" in command("show", tmp_path / "one")
    (remark,) = json.loads((tmp_path / "one" / "summary.json").read_text())["remarks"]
    assert set(remark) == {"kind", "text", "cause"}
    assert potluck.load(tmp_path / "one").summary["remarks"] == [remark]
    out = command("list", tmp_path)
    assert re.search(r"finished +[\d.]+ % !", out)
    assert f"one: {told}" in " ".join(out.split())
    out = command("compare", file, "--algorithms", "fedavg,fedprox", "--out", tmp_path / "both", *settings)
    for text in (out, command("show", tmp_path / "both")):
        assert re.search(r"fedavg ! +│", text)
        assert "!: see below" in text
        assert f"! fedavg: {told}" in text
        assert f"! fedprox: {told}" in text
    assert f'<p class="warning">fedprox: {told}' in (tmp_path / "both" / "report.html").read_text()

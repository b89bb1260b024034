"""Fed-RAC as published: tiers that can be told by hand, whose turn it is, what is refused and reported."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, STACKED, finished, pool, simulate, small, values, weights

from potluck import algorithms
from potluck.algorithms.fedrac import results
from potluck.algorithms.fedrac.claims import Device
from potluck.algorithms.fedrac.costs import streaming_factor
from potluck.algorithms.fedrac.distillation import confidence, plan_round
from potluck.algorithms.fedrac.forming import find_richest
from potluck.algorithms.fedrac.schedule import count_rounds, find_teacher, find_turns
from potluck.algorithms.fedrac.settings import Clustering
from potluck.core.errors import ConfigError
from potluck.core.job import ModelSpec
from potluck.core.trees import nbytes
from potluck.engine.schedule import EvaluateAt
from potluck.experiment import Experiment
from potluck.experiment.study import overlay
from potluck.fleet import REFERENCE_OPS, Intervals, slow_by_swapping
from potluck.jobs import SGD, Train
from potluck.jobs.privacy import Private
from potluck.models.footprint import inference_bytes, training_bytes

GIB = 2.0**30
RICH = {"compute": 10.0, "down": 20e6, "memory": 8 * GIB}
MIDDLE = {"compute": 40.0, "down": 8e6, "memory": 4 * GIB}
POOR = {"compute": 120.0, "down": 2e6, "memory": 1 * GIB}
PHONES = [RICH] * 3 + [MIDDLE] * 3 + [POOR] * 3
EVERY = EvaluateAt(rounds=1)
FEW = {"mode": "published", "rounds": 3, "clustering": {"smallest": 1, "fewer": 0}}
UNTAUGHT, BELIEVED = {"distillation": {"enabled": False}}, {"verification": {"enabled": False}}


def crowd(phones=PHONES, **more):
    return small((12,) * len(phones), source="table", rows=phones, **more)


def run(where=None, local=LOCAL, plan=LOOP, **params):
    rule = algorithms.make("fedrac", local, **overlay(FEW, params))
    sim = finished(where or crowd(), rule, rounds=60, often=EVERY, plan=plan)
    sim.lines = sim.records
    return sim


def noted(sim, metric):
    return [r for r in sim.records if r["metric"] == metric]


def order(sim):
    """Tiers in the order in which they finished their rounds."""
    return [r["group"] for r in noted(sim, "tier_round")]


# ------------------------------------------------------------------------------------------- a whole run


def test_three_kinds_of_phones_are_three_tiers():
    sim = run()
    (told,) = values(sim, "tiers")
    assert told["index"] == {2: pytest.approx(told["index"][2]), 3: "infinite"}  # three kinds, each alike
    assert told["clusters"] == told["members"] == [3, 3, 3]
    assert results.find_members(sim) == {n: n // 3 for n in range(9)}
    assert told["scales"] == [0.03, 0.015, 0.0075]  # halves of LOCAL's width
    # mlp 5-h-4 with 6, 3 and 2 hidden units, of 8 bytes: 64, 34 and 24 numbers
    assert told["bytes"] == [512, 272, 192]
    assert order(sim)[:3] == [0, 0, 0]  # the leader first
    assert sorted(order(sim)[3:]) == [1, 1, 1, 2, 2, 2]
    assert sim.round == 3 + 3  # the leader's and a follower's
    assert results.count_in_time(sim) == 9
    assert results.count_late(sim) == 0
    assert not noted(sim, "false_report")


def test_times_by_hand():
    """A round of a tier's slowest member, with the teacher spread over three rounds; a fifth more for all."""
    sim = run()
    (told,) = values(sim, "tiers")
    ops = [5 * h + h * 4 for h in (6, 3, 2)]  # 54, 27, 18
    needs = []
    for tier, phone in enumerate((RICH, MIDDLE, POOR)):
        row = 3 * ops[tier] / REFERENCE_OPS * phone["compute"] / 1000
        size = told["bytes"][tier]
        seconds = 12 * row + 2 * 0.05 + 8 * size / phone["down"] + 8 * size / (phone["down"] / 2)
        if tier:
            lesson = 8 * 512 / phone["down"] + 12 * ops[0] / REFERENCE_OPS * phone["compute"] / 1000
            seconds += lesson / 3
        needs.append(3 * seconds)
    last = max(needs[0] * 4, needs[1] * 2, needs[2])  # kappa 1/2: T = (T_m / 4, T_m / 2, T_m)
    assert told["mar"] == pytest.approx(1.2 * last * (1 + 1 / 4))
    assert told["seconds"] == pytest.approx([1.2 * last / 4 / 3, 1.2 * last / 2 / 3, 1.2 * last / 3])
    given = values(run(time={"mar": 90.0}), "tiers")[0]
    assert given["seconds"] == pytest.approx([6.0, 12.0, 24.0])  # T_m = 90 / (1 + 1/4) = 72
    chained = values(run(time={"mar": 90.0}, schedule={"chained": True}, rounds=1), "tiers")[0]
    assert chained["seconds"] == pytest.approx([90 / 7, 180 / 7, 360 / 7])


def test_who_is_out_of_time_is_lost_and_the_rest_goes_on():
    """Latency alone takes 0.1 s a round: the leader has 0.06 s here, and the others have more."""
    sim = run(time={"mar": 0.9}, **BELIEVED)
    (told,) = values(sim, "tiers")
    assert told["seconds"] == pytest.approx([0.06, 0.12, 0.24])
    assert told["members"][0] == 0  # nobody can train there in time
    assert results.find_trained(sim) == [1, 2]
    assert all(results.trace_tier(sim, tier) for tier in results.find_trained(sim))
    assert results.count_late(sim) == 0
    sim = run(time={"mar": 0.15}, **BELIEVED)
    assert values(sim, "late_at_best") == [list(range(9))]  # the last tier takes all the same
    assert results.count_late(sim) == 27
    assert results.count_in_time(sim) == 0
    assert sim.round == 3


def test_loop_and_stack_agree():
    hints = {"distillation": {"hint": 0.3}, "mixing": {"enabled": True}}
    early = {"schedule": {"head_start": 1}, "distillation": {"confident_rate": True}}
    for how in ({}, hints, early):
        loop, stacked = run(**how), run(plan=STACKED, **how)
        torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)
        assert order(loop) == order(stacked)


def test_a_follower_learns_from_the_leader():
    """The first round carries the teacher down; from then on nobody is sent it again."""
    taught, alone = run(), run(**UNTAUGHT)
    assert order(taught) == order(alone)  # the schedule is the same
    extra = values(taught, "bytes_down")[-1] - values(alone, "bytes_down")[-1]
    assert extra == 6 * 512  # six followers, once
    assert torch.equal(weights(taught)[:64], weights(alone)[:64])  # the leader doesn't care
    assert not torch.equal(weights(taught)[64:], weights(alone)[64:])


def test_find_turns():
    none = [0, 0, 0]
    assert find_turns([3, 3, 3], none, None, False) == [0]
    assert find_turns([1, 3, 3], [2, 0, 0], 2, False) == [0, 1, 2]  # after its head start
    assert find_turns([2, 3, 3], [1, 0, 0], 2, False) == [0]
    assert find_turns([0, 2, 3], [3, 1, 0], None, False) == [1, 2]
    assert find_turns([0, 3, 3], none, None, False) == [1]  # an empty tier leads nobody
    assert find_turns([0, 1, 3], [3, 2, 0], None, True) == [1]
    assert find_turns([0, 0, 0], [3, 3, 3], None, False) == []
    assert [find_teacher(f, [3, 3, 0], False) for f in range(3)] == [None, 0, 0]
    assert [find_teacher(f, [3, 3, 0], True) for f in range(3)] == [None, 0, 1]
    assert find_teacher(1, none, False) is None  # nobody has trained
    assert count_rounds([0, 1, 0], [3, 2, 3], False) == 6
    assert count_rounds([0, 1, 0], [3, 2, 3], True) == 8


def test_chained_tiers_train_one_after_another():
    sim = run(schedule={"chained": True})
    assert order(sim) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert sim.round == 9
    down = (
        values(sim, "bytes_down")[-1] - values(run(schedule={"chained": True}, **UNTAUGHT), "bytes_down")[-1]
    )
    assert down == 3 * 512 + 3 * 272  # each tier is sent the model of the next richer one


def test_a_head_start():
    """After two of five rounds: a lesson by the leader of that moment, one more by the finished one."""
    sim = run(schedule={"head_start": 2}, rounds=(5, 6))
    assert order(sim)[:2] == [0, 0]
    last = max(i for i, tier in enumerate(order(sim)) if tier == 0)
    assert order(sim).index(1) < last  # side by side
    down = values(sim, "bytes_down")[-1]
    alone = values(run(schedule={"head_start": 2}, rounds=(5, 6), **UNTAUGHT), "bytes_down")[-1]
    assert down - alone == 2 * 6 * 512


def test_the_most_competent_lead():
    phones = [RICH, {**RICH, "compute": 11.0}, {**RICH, "compute": 12.0}, *PHONES[3:]]
    sim = run(crowd(phones), schedule={"competent": 0.5}, **UNTAUGHT)
    first = noted(sim, "tier_round")[0]
    assert first["value"]["answered"] == 2  # of three, rounded up
    assert results.count_in_time(sim) == 8


def test_confidence_lowers_followers_learning_rate():
    assert confidence(math.log(2), 4, 4) == pytest.approx(0.5)
    assert confidence(0.0, 1, 4) == 0.25
    assert confidence(0.0, 9, 4) == 1.0
    plain, sure = run(), run(distillation={"confident_rate": True})
    assert torch.equal(weights(plain)[:64], weights(sure)[:64])
    assert not torch.equal(weights(plain)[64:], weights(sure)[64:])


def test_one_model_of_all_layers_on_request():
    sim = run(mixing={"enabled": True, "leader_weight": 2.0})
    views = sim.serve(sim.root)
    assert list(views) == ["tier 0", "tier 1", "tier 2", "global"]
    big, half, quarter, mixed = (v.send["params"] for v in views.values())
    # The first two hidden units are everybody's: rows 72 (leader, doubled), 36 and 36.
    name = next(iter(big))
    expected = (72 * big[name][:2] + 36 * half[name][:2] + 36 * quarter[name][:2]) / 144
    torch.testing.assert_close(mixed[name][:2], expected)
    torch.testing.assert_close(mixed[name][3:], big[name][3:])  # those beyond are the leader's alone
    assert "global" not in run().serve(sim.root)


def test_competence_is_what_is_known_now():
    """Of three rich phones, the first turns out slower than the others."""
    sim, rule = run(crowd([RICH] * 3 + PHONES[3:])), algorithms.make("fedrac", LOCAL, **FEW)
    m = sim.points[sim.root].own.state.model
    assert find_richest(rule, m, [0, 1, 2], 0.5) == [0, 1]
    known = {**m.known, 0: dataclasses.replace(m.known[0], compute=30.0)}
    assert find_richest(rule, dataclasses.replace(m, known=known), [0, 1, 2], 0.5) == [1, 2]


def test_a_leader_without_members_still_teaches():
    """Those who trained it have moved since: followers' learning rates fall, but not to nothing."""
    sim, rule = run(), algorithms.make("fedrac", LOCAL, distillation={"confident_rate": True}, **FEW)
    m = dataclasses.replace(sim.points[sim.root].own.state.model, sizes=(0, 3, 6))
    _, tasks, _ = plan_round(rule, m, 1, [3], SimpleNamespace(models=sim.federation.models))
    # One of three members that an even division would give it.
    assert tasks[0].job.optim.lr == pytest.approx(LOCAL.optim.lr * math.exp(-m.means[0]) / 3)


def test_hints_have_their_time():
    """The map between features is ten times as big as the model here, and a part of every round."""
    wide = Train(ModelSpec("mlp"), optim=SGD(0.1), batch=4)
    sim = run(local=wide, distillation={"hint": 0.3})
    assert results.count_late(sim) == 0
    assert results.find_members(sim) == {n: n // 3 for n in range(9)}
    # The last tier has 50 hidden units and the leader 200: 80,000 bytes more each way, and as many products.
    more = 8 * 80_000 * (1 / POOR["down"] + 2 / POOR["down"])
    more += 12 * 3 * 10_000 / REFERENCE_OPS * POOR["compute"] / 1000
    assert (
        values(sim, "tiers")[0]["seconds"][2] > 1.2 * more > values(run(local=wide), "tiers")[0]["seconds"][2]
    )


def test_bounds_may_judge():
    """Two of 3 steps each, R = 20, lr .1: 4 / (.1 * 3 * 20) + .6 / 2 + 6 * .0225 * 2 = 1.237 of theta."""

    def judged(theta):
        return run(rounds=20, time={"mar": 1e9}, admission={"judge": "bound", "theta": theta})

    assert values(judged(1.24), "tiers")[0]["members"] == [9, 0, 0]  # there is time enough
    closed = r"judge = 'bound': its bounds admit 1 to tier 0, where 9 could train: .*, or take judge = 'able'"
    with pytest.raises(ConfigError, match=closed):  # one alone is consistent, two aren't
        judged(1.23)
    by_default = run(rounds=20, time={"mar": 1e9})
    assert values(by_default, "tiers")[0]["members"] == [3, 3, 3]  # who could train more stays with its like


def test_clusters_by_density():
    assert values(run(clustering={"method": "optics"}), "tiers")[0]["clusters"] == [3, 3, 3]
    with pytest.raises(
        ConfigError, match=r"fedrac.clustering.method = 'optic': should be 'kmeans', 'dbscan' or"
    ):
        algorithms.make("fedrac", LOCAL, clustering={"method": "optic"})
    with pytest.raises(ConfigError, match=r"method = 'optic': did you mean 'optics'"):
        Clustering(method="optic")


# ----------------------------------------------------------------------------------------- sizes and memory


def test_models_shrink_until_training_fits():
    """Training the leader's model takes 52,480 bytes or so; its poorest member has 30,000."""
    local = Train(ModelSpec("mlp"), optim=SGD(0.1), batch=4)
    memory = [9e4, 9e4, 3e4, 5e4, 5e4, 5e4, 2e4, 2e4, 2e4]
    phones = [dict(phone, memory=m) for phone, m in zip(PHONES, memory, strict=True)]
    told = values(run(crowd(phones), local, clustering={"k": 3, "weights": (0.5, 0.5, 0.0)}), "tiers")[0]
    assert told["scales"] == [0.5, 0.5, 0.25]  # a tier's model is no bigger than that of a richer one


def test_depth_instead_of_width():
    local = dataclasses.replace(LOCAL, model=ModelSpec("mlp", width=0.03, depth=4.0))
    told = values(run(local=local, sizes={"by": "depth"}), "tiers")[0]
    assert told["scales"] == [4.0, 2.0, 1.0]
    hidden = 6 * 6 + 6  # a hidden layer more
    assert told["bytes"] == [8 * (64 + 3 * hidden), 8 * (64 + hidden), 8 * 64]


def test_a_phone_that_cannot_hold_the_teacher_streams_it():
    federation = crowd()
    net = federation.models[LOCAL.model]
    whole = inference_bytes(net)
    phone = Device(40.0, 1e6, 1e6, 0.05, whole / 2, 12)
    assert streaming_factor(phone, net) == slow_by_swapping(whole, whole / 2) == 1 + 19 / 2
    assert streaming_factor(dataclasses.replace(phone, memory=whole), net) == 1.0


def test_a_device_too_small_for_any_model_is_named():
    phones = [*PHONES[:8], {**POOR, "memory": 100.0}]
    with pytest.raises(
        ConfigError, match=r"devices 8 \(100 bytes\): too little memory .*fedrac.sizes.leave_out = true"
    ):
        run(crowd(phones))
    sim = run(crowd(phones), sizes={"leave_out": True}, verification={"remeasure": 1})
    assert [r["group"] for r in noted(sim, "left_out")] == [8]
    assert 8 not in results.find_members(sim)
    assert sorted(sim.points[sim.root].own.state.model.known) == list(range(8))  # nor is it compared with
    assert list(sim.serve(8)) == ["tier"]  # it is served all the same


def test_too_few_may_be_left():
    tiny = {**POOR, "memory": 100.0}
    with pytest.raises(ConfigError, match=r"sizes.leave_out = True: too few are left without them"):
        run(crowd([*PHONES[:3], tiny]), sizes={"leave_out": True})


def later(memory):
    """Eight phones with memory enough, and a ninth that comes after a second."""
    phones = [dict(phone, memory=9e4) for phone in PHONES[:8]] + [dict(POOR, memory=memory)]
    there = [[(0.0, np.inf)]] * 8 + [[(1.0, np.inf)]]
    return small((12,) * 9, source="table", rows=phones, availability=Intervals.of(there))


def test_who_comes_later_finds_a_model_that_it_can_hold():
    """Training the whole model takes more than 48,096 bytes (3 times 16,032); that phone has 5,000."""
    local = Train(ModelSpec("mlp"), optim=SGD(0.1), batch=4)
    sim = run(later(5e3), local, rounds=6, clustering={"k": 2}, verification={"remeasure": 1})
    assert 8 in results.find_members(sim)
    needs = training_bytes(sim.federation.models[sim.serve(8)["tier"].job.model], local.optim, 4)
    assert needs <= 5e3
    with pytest.raises(ConfigError, match=r"devices 8 \(100 bytes\): too little memory"):
        simulate(
            later(100.0), algorithms.make("fedrac", local, mode="published")
        ).start()  # known before anything is done


# ---------------------------------------------------------------------------------------------- bad input


def test_too_few_participants():
    rule = algorithms.make("fedrac", LOCAL)
    with pytest.raises(ConfigError, match=r"data.clients = 3: give at least 4"):
        simulate(small((12,) * 3), rule)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"rounds": 0}, "rounds = 0: give at least 1 round"),
        ({"rounds": (3, 0)}, r"rounds = \(3, 0\): give at least 1 round"),
        ({"clustering": {"k": 0}}, "clustering.k = 0: must be at least 1"),
        ({"clustering": {"fewer": -1}}, "clustering.fewer = -1: must be 0 or more"),
        ({"clustering": {"smallest": 0}}, "clustering.smallest = 0: must be at least 1"),
        ({"clustering": {"weights": (0.5, 0.5, 0.5)}}, "clustering.weights = .* add up to 1"),
        ({"clustering": {"kk": 3}}, "clustering.kk = 3: no such parameter; did you mean 'k'"),
        ({"sizes": {"alpha": 1.0}}, "sizes.alpha = 1.0: must be above 0 and below 1"),
        ({"sizes": {"alpha": 0.0}}, "sizes.alpha = 0.0: must be above 0 and below 1"),
        ({"sizes": {"by": "hight"}}, "sizes.by = 'hight': should be 'width' or 'depth'"),
        ({"time": {"kappa": 1.5}}, "time.kappa = 1.5: must be above 0 and below 1"),
        ({"time": {"mar": -1.0}}, "time.mar = -1.0: must be above 0, or left out"),
        ({"time": {"least_rows": 0.0}}, "time.least_rows = 0.0: must be a share"),
        ({"time": {"least_epochs": 0}}, "time.least_epochs = 0: must be at least 1"),
        ({"time": {"least_epochs": 9}}, "time.least_epochs = 9: must be at most train.epochs, 1"),
        ({"admission": {"theta": 0.0}}, "admission.theta = 0.0: must be above 0"),
        ({"landscape": {"convex": 2.0}}, "landscape.smooth = 1.5: L is no less than mu"),
        ({"schedule": {"head_start": -1}}, "schedule.head_start = -1: must be 0 or more"),
        ({"schedule": {"head_start": 1, "chained": True}}, "schedule.head_start = 1: tiers of a chain"),
        ({"schedule": {"competent": 0.0}}, "schedule.competent = 0.0: must be a share"),
        ({"distillation": {"a": 1.5}}, "distillation.a = 1.5: must be between 0"),
        ({"distillation": {"temperature": 0.0}}, "distillation.temperature = 0.0: must be above 0"),
        ({"distillation": {"hint": -1.0}}, "distillation.hint = -1.0: must be 0 or more"),
        ({"mixing": {"leader_weight": 0.0}}, "mixing.leader_weight = 0.0: must be above 0"),
        ({"verification": {"tolerance": 0.0}}, "verification.tolerance = 0.0: must be above 0"),
        ({"verification": {"patience": 0}}, "verification.patience = 0: must be at least 1"),
        ({"verification": {"remeasure": -1}}, "verification.remeasure = -1: must be 0"),
    ],
)
def test_bad_settings_are_refused(params, said):
    with pytest.raises(ConfigError, match=rf"algorithms\.fedrac\.{said}"):
        algorithms.make("fedrac", LOCAL, mode="published", **params)


def test_a_file_sets_single_keys_of_a_table():
    told = Experiment(algorithm="fedrac").with_overrides(["algorithms.fedrac.clustering.k=3"])
    rule = algorithms.make("fedrac", LOCAL, **told.algorithms["fedrac"])
    assert rule == algorithms.make("fedrac", LOCAL, clustering=Clustering(k=3))
    stored = algorithms.complete("fedrac", **told.algorithms["fedrac"])
    assert stored["clustering"] == {
        "method": "kmeans", "k": 3, "fewer": 1, "smallest": 5, "weights": [0.4, 0.4, 0.2],
    }  # fmt: skip
    assert algorithms.make("fedrac", LOCAL, **stored) == rule


def test_steps_are_refused():
    with pytest.raises(ConfigError, match=r"train.steps = 3: work is given in epochs"):
        algorithms.make("fedrac", dataclasses.replace(LOCAL, steps=3))


def test_confidence_needs_losses():
    local = dataclasses.replace(LOCAL, privacy=Private(1.0, 0.1))
    with pytest.raises(ConfigError, match=r"distillation.confident_rate = True: needs losses"):
        algorithms.make("fedrac", local, distillation={"confident_rate": True})


def test_alike_phones_are_one_tier_and_constant_resources_are_said():
    sim = run(crowd([RICH] * 6))
    assert values(sim, "constant_resources") == [["speed", "rate", "memory"]]
    assert values(sim, "tiers")[0]["members"] == [6]
    assert order(sim) == [0, 0, 0]
    slow = run(
        crowd([{**phone, "compute": 10.0} for phone in PHONES]), clustering={"weights": (1.0, 0.0, 0.0)}
    )
    assert values(slow, "tiers")[0]["members"] == [9]  # they differ, but not in what counts
    some = run(crowd([{**phone, "memory": GIB} for phone in PHONES]))
    assert values(some, "constant_resources") == [["memory"]]
    assert values(some, "tiers")[0]["members"] == [3, 3, 3]


# ---------------------------------------------------------------------------------------------- reporting


def told(*records):
    return SimpleNamespace(lines=[{"round": 0, "time": 0.0, **r} for r in records])


def test_metrics_by_hand():
    def at(view, accuracy):
        return {"metric": "global_accuracy", "view": f"tier {view}", "value": accuracy}

    def done(tier, count):
        return {"metric": "tier_round", "group": tier, "value": {"round": count}, "time": 10.0 * count + tier}

    run = told(
        at(0, 0.9),  # before there were tiers: doesn't count
        {"metric": "tiers", "value": {"members": [2, 2, 1]}},
        *(at(0, 0.1), done(0, 1), at(0, 0.5), done(0, 2), at(0, 0.8)),
        *(done(1, 1), done(2, 1), at(1, 0.6), at(2, 0.2), done(2, 2), at(1, 0.7), at(2, 0.6)),
    )
    assert [results.trace_tier(run, tier)[-1].value for tier in results.find_trained(run)] == [0.8, 0.7, 0.6]
    assert results.count_rounds_to(run, 0.5) == [1, 1, 2]
    assert results.count_total_rounds(run, 0.5) == 1 + 2
    assert results.count_total_rounds(run, 0.75) is None
    assert results.measure_f1(run, 0) is None
    assert results.find_trained(told()) == results.trace_tier(told(), 0) == []
    assert results.count_total_rounds(told(), 0.5) is None


def test_f1_agrees_with_its_definition():
    from sklearn.metrics import f1_score

    sim = run(by_class=True)
    task, net = sim.serve(sim.root)["tier 1"], sim.federation.models
    rows = np.flatnonzero(pool().test)
    said = net[task.job.model](task.send["params"], pool().x[rows]).argmax(-1)
    assert results.measure_f1(sim, 1) == pytest.approx(f1_score(pool().y[rows], said, average="macro"))
    own = results.list_device_accuracies(sim)
    assert all(0 <= a <= 1 for a in own)
    last = {r["node"]: r["value"] for r in noted(sim, "accuracy")}
    assert own[0] == pytest.approx(np.mean([last[n] for n in (0, 1, 2)]))


def test_what_is_sent_back_is_the_tier_model():
    sim = run(distillation={"hint": 0.5})
    for tier, size in enumerate((512, 272, 192)):
        assert nbytes(sim.serve(sim.root)[f"tier {tier}"].send["params"]) == size

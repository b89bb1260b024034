"""Fed-RAC by default: time and memory decide, richer devices train poorer tiers' models, all are heard."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, STACKED, finished, simulate, small, values, weights
from support import Desk, notes, tasks

from potluck import algorithms
from potluck.algorithms.fedrac import results
from potluck.algorithms.fedrac.assignment import Place, Terms, assign, measure_work
from potluck.algorithms.fedrac.budgets import SLACK, estimate_time, share_time
from potluck.algorithms.fedrac.costs import Costs
from potluck.algorithms.fedrac.device.known import heed
from potluck.algorithms.fedrac.forming import weigh_work
from potluck.algorithms.fedrac.mixing import mix_back
from potluck.algorithms.fedrac.schedule import TOGETHER, count_rounds
from potluck.algorithms.fedrac.sharing import share_work
from potluck.algorithms.fedrac.sizing import spread_scales
from potluck.core.errors import ConfigError
from potluck.core.job import ModelSpec
from potluck.core.messages import Lost, Reply, Spent
from potluck.core.rule import Got
from potluck.engine.schedule import EvaluateAt
from potluck.experiment.study import overlay
from potluck.jobs import SGD, LabelCounts, Train
from potluck.jobs.privacy import Private
from potluck.models.footprint import training_bytes

# Training takes 62 kB for the whole model, 31 for half of it, 16 and 9: a third can't hold the whole.
WIDE = Train(ModelSpec("mlp"), optim=SGD(0.1), batch=4)
MEMORY = [90e3] * 8 + [50e3, 40e3, 25e3, 17e3]
SPEED = [1e4, 1.2e4, 1.4e4, 1.6e4, 2e4, 2.4e4, 3e4, 4e4, 3e4, 3e4, 5e4, 6e4]
PHONES = [{"compute": c, "down": 20e6, "memory": m} for c, m in zip(SPEED, MEMORY, strict=True)]
FEW = {"rounds": 3, "clustering": {"smallest": 1}}


def crowd(phones=PHONES, **more):
    return small((12,) * len(phones), source="table", rows=phones, **more)


def rule(local=WIDE, **params):
    return algorithms.make("fedrac", local, **overlay(FEW, params))


def run(where=None, plan=LOOP, local=WIDE, **params):
    sim = finished(where or crowd(), rule(local, **params), rounds=60, often=EvaluateAt(rounds=1), plan=plan)
    sim.lines = sim.records
    return sim


def formed(**params):
    """The rule, its state when tiers have just been formed, and a context in which everybody is there."""
    made = rule(**params)
    sim = simulate(crowd(), made, rounds=60)
    sim.start()
    while not sim.points[sim.root].own.state.model.places:
        sim.step()
    m = sim.points[sim.root].own.state.model
    sim.close()
    return made, m, Desk(models=sim.federation.models, children=range(len(PHONES)))


# ------------------------------------------------------------------------------------------- a whole run


def test_where_a_third_cannot_hold_the_full_model_three_tiers_have_members():
    sim = run()
    (told,) = values(sim, "tiers")
    assert sum(size > 0 for size in told["members"]) >= 3
    assert told["scales"][0] == 1.0  # a small phone among rich ones makes nobody's model smaller
    assert sum(told["members"]) == len(PHONES) == results.count_in_time(sim)
    assert results.count_late(sim) == 0
    assert sim.round == 3  # tiers train in the same rounds
    (shared,) = values(sim, "shared")
    assert shared["helpers"][0] == 0
    members = results.find_members(sim)
    last = max(members.values())
    assert shared["helpers"][last] == sum(tier < last for tier in members.values())  # all who are richer
    done = [r["value"] for r in sim.records if r["metric"] == "tier_round" and r["group"] == last]
    assert [d["helpers"] for d in done] == [shared["helpers"][last]] * 3
    assert {d["answered"] for d in done} == {len(PHONES)}


def test_nobody_trains_what_it_cannot_hold_nor_longer_than_the_round():
    made, m, ctx = formed()
    costs, _, _ = weigh_work(made, m, sorted(m.places), ctx)
    sizes = [training_bytes(ctx.models[spec], WIDE.optim, 4) for spec in m.specs]
    assert sum(need > sizes[0] for need in MEMORY) == 8
    _, commands = made.plan(m, TOGETHER, ctx)
    work = {n: [m.places[n], *m.helps.get(n, ())] for n in m.places}
    assert len(tasks(commands)) == sum(map(len, work.values()))
    for task in tasks(commands):
        assert training_bytes(ctx.models[task.job.model], WIDE.optim, task.job.batch) <= MEMORY[task.to]
    for n, each in work.items():
        seconds = sum(measure_work(costs, dataclasses.replace(place, who=n)) for place in each)
        assert seconds <= m.seconds[0] / SLACK * (1 + 1e-9)
        assert [place.tier for place in each][1:] == sorted((place.tier for place in each[1:]), reverse=True)
    # A device's own model comes first in its queue: help can't make it late.
    order = [task.tag.helps for task in tasks(commands)]
    assert order == sorted(order)


def test_loop_and_stack_agree():
    for how in ({}, {"mixing": {"back": 0.5}}, {"distillation": {"enabled": True}}):
        loop, stacked = run(**how), run(plan=STACKED, **how)
        torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)


def test_followers_may_be_taught_and_are_then_helped_by_a_leader_that_is_done():
    sim = run(distillation={"enabled": True})
    order = [r["group"] for r in sim.records if r["metric"] == "tier_round"]
    assert order[:3] == [0, 0, 0]
    assert set(order[3:]) == {1, 2}
    assert sim.round == 6


def test_rounds_are_those_of_the_run_and_without_any_there_is_no_end():
    sim = finished(crowd(), algorithms.make("fedrac", WIDE, 4, clustering={"smallest": 1}), rounds=4)
    assert values(sim, "tiers")[0]["rounds"] == [4] * 3
    endless = finished(crowd(), algorithms.make("fedrac", WIDE, clustering={"smallest": 1}), rounds=5)
    (told,) = values(endless, "tiers")
    assert (told["mar"], told["rounds"]) == (None, [None] * 3)
    assert endless.round == 5
    assert told["seconds"] == pytest.approx(values(sim, "tiers")[0]["seconds"])
    with pytest.raises(ConfigError, match=r"time.mar = 9.0: is shared out over rounds, of which there is no"):
        simulate(crowd(), algorithms.make("fedrac", WIDE, time={"mar": 9.0})).start()


# ------------------------------------------------------------------------------------------ tiers by hand


def test_models_are_spread_over_what_devices_can_hold():
    def size(scale):  # half the width, a quarter of the bytes
        return 1600 * scale**2

    assert spread_scales(0.5, 3, [1600, 400, 100], size) == pytest.approx([1, 0.5, 0.25])
    assert spread_scales(0.5, 3, [9999, 7], size) == pytest.approx([1, 0.25, 0.0625])  # even steps to 1/16
    assert spread_scales(0.5, 3, [9999, 9999], size) == pytest.approx([1, 0.5, 0.25])  # all can hold all
    assert spread_scales(0.5, 2, [400, 100], size) == pytest.approx([0.5, 0.25])  # nobody can hold the whole
    assert spread_scales(0.5, 1, [1600, 100], size) == pytest.approx([0.25])


def three(**more):
    """Rows take 4, 2 and 1 seconds in the three tiers, links none."""
    given = dict(
        scores=np.linspace(1, 0, 3),
        rows=np.full(3, 10),
        memory=np.full(3, 100.0),
        compute=np.tile([4.0, 2.0, 1.0], (3, 1)),
        link=np.zeros((3, 3)),
    )
    return Costs(**(given | more))


def test_a_richer_tier_leaves_time_for_the_smallest_model():
    """40 s in tier 0 and 10 s for the smallest, of 60 s with a sixth of slack: 50 s."""

    def placed(seconds, **more):
        terms = Terms(np.full(3, seconds), np.ones(3, int), 10, whole=True, reserve=True)
        return [place.tier for place in assign(three(**more), terms, lambda tier, batch: 50.0).places]

    assert placed(60.0) == [0, 0, 0]
    assert placed(59.9) == [1, 1, 1]
    assert placed(36.0) == [1, 1, 1]  # 20 and 10 of 30
    assert placed(35.9) == [2, 2, 2]
    assert placed(60.0, compute=np.array([[4, 2, 1.0], [5, 2, 1], [9, 5, 2]])) == [0, 1, 2]


def test_work_is_whole_but_in_the_last_tier():
    """In 6 s the last tier takes 6 of 10 rows. Richer tiers reduce neither rows nor batches."""
    terms = Terms(np.full(3, 6.0), np.ones(3, int), 10, whole=True)
    assert assign(three(), terms, lambda tier, batch: 50.0).places[0] == Place(0, 2, 1, 6, 10, reduced=True)
    held = assign(three(), dataclasses.replace(terms, seconds=np.full(3, 99.0)),
                  lambda tier, batch: (95, 60, 10)[tier] + batch)  # fmt: skip
    assert [place.tier for place in held.places] == [1, 1, 1]  # a batch of 5 would fit in tier 0


def test_time_is_that_of_the_slowest_with_the_smallest_model_besides():
    costs, ones = three(), np.ones(3, int)
    assert share_time(7.0, 3, at_once=True).tolist() == [7.0, 7.0, 7.0]
    # Two rounds: 40 + 10 s of the first; 20 + 10 s of the second; 10 s of the third.
    total = estimate_time(costs, np.array([0, 1, 2]), ones, [2, 2, 2], 0.5, False, True, True)
    assert total == pytest.approx(SLACK * 2 * 50)
    assert (
        estimate_time(costs, np.array([2, 2, 2]), ones, [2, 2, 2], 0.5, False, True, True) == SLACK * 2 * 10
    )
    assert estimate_time(costs, np.array([0, 1, 2]), ones, [2, 2, 2], 0.5, False, True) == SLACK * 2 * 40
    assert count_rounds([0, 1], [3, 2], False, True) == 3


def test_help_fills_the_time_that_is_left_the_smallest_model_first():
    made, m, ctx = formed()
    costs, _, _ = weigh_work(made, m, sorted(m.places), ctx)
    own = np.array([measure_work(costs, dataclasses.replace(m.places[n], who=n)) for n in range(12)])

    def helped(seconds):
        m2, noted = share_work(made, dataclasses.replace(m, seconds=(seconds,) * 3, helps={}), ctx)
        assert notes(noted) == [("shared", {"helpers": [
            sum(w.tier == f for ws in m2.helps.values() for w in ws) for f in range(3)]})]  # fmt: skip
        return [work.tier for work in m2.helps.get(0, ())]

    last, middle = (measure_work(costs, Place(0, f, 1, 12, 4)) for f in (2, 1))
    assert helped(SLACK * (own[0] + last + middle) * (1 + 1e-9)) == [2, 1]
    assert helped(SLACK * (own[0] + last) * (1 + 1e-9)) == [2]
    assert share_work(made, m, ctx) == (m, [])  # nothing new
    alone = rule(share="own")
    assert share_work(alone, dataclasses.replace(m, helps={}), ctx)[0].helps == {}


# --------------------------------------------------------------------------------------- merging by hand


def replies(m, commands, delta):
    """Everybody's models change by `delta(task)` everywhere; each counts its rows."""

    def change(task):
        return {name: torch.full_like(p, delta(task)) for name, p in task.send["params"].items()}

    return [Reply(task, {"delta": change(task)}, 12.0, {"loss": 1.0}, Spent()) for task in tasks(commands)]


def test_members_and_helpers_count_by_their_rows():
    made, m, ctx = formed(verification={"enabled": False})
    m, commands = made.plan(m, TOGETHER, ctx)
    got = Got(replies(m, commands, lambda task: 3.0 if task.tag.helps else 1.0), [])
    after, _ = made.merge(m, TOGETHER, got, ctx)
    for tier, size in enumerate(m.sizes):
        helpers = sum(work.tier == tier for each in m.helps.values() for work in each)
        moved = (size * 1.0 + helpers * 3.0) / (size + helpers)
        for name, p in m.params[tier].items():
            torch.testing.assert_close(after.params[tier][name], p + moved)
    assert after.done == (1, 1, 1)
    assert after.losses == dict.fromkeys(range(12), 1.0)


def test_help_that_comes_late_moves_nobody():
    made, m, ctx = formed()
    for _ in range(4):
        m, commands = made.plan(m, TOGETHER, ctx)
        told = replies(m, commands, lambda task: 0.0)
        got = Got(
            [r for r in told if not r.task.tag.helps],
            [Lost(r.task, "late") for r in told if r.task.tag.helps],
        )
        m, noted = made.merge(m, TOGETHER, got, ctx)
        assert {note.name for note in noted} <= {"tier_round", "false_report"}
    assert m.late == {}


def test_layers_go_back_to_tiers_by_hand():
    """Tier 0 holds 1 everywhere, tier 1 holds 4 and tier 2 holds 0; they are trained on 24, 12 and 12 rows.

    What all have is (24 + 48 + 0) / 48 = 1.5; what the first two have, (24 + 48) / 36 = 2; the rest is 1.
    """
    made, m, ctx = formed(mixing={"back": 0.5})
    params = tuple(
        {name: torch.full_like(p, value) for name, p in each.items()}
        for each, value in zip(m.params, (1.0, 4.0, 0.0), strict=True)
    )
    places = {0: Place(0, 0, 1, 12, 4), 1: Place(1, 0, 1, 12, 4), 2: Place(2, 1, 1, 12, 4)}
    m = dataclasses.replace(m, params=params, places=places, helps={0: (Place(0, 2, 1, 12, 4),)})
    assert m.count_rows() == [24.0, 12.0, 12.0]
    back = mix_back(made, m, [0, 1, 2], ctx)
    name = next(name for name, p in params[0].items() if p.ndim == 2)
    sizes = [p[name].shape[0] for p in params]
    first = back.params[0][name][:, 0]
    assert first[: sizes[2]].tolist() == pytest.approx([1 + 0.5 * 0.5] * sizes[2])
    assert first[sizes[2] : sizes[1]].tolist() == pytest.approx([1 + 0.5 * 1.0] * (sizes[1] - sizes[2]))
    assert first[sizes[1] :].tolist() == pytest.approx([1.0] * (sizes[0] - sizes[1]))
    assert back.params[1][name][0, 0] == pytest.approx(4 - 0.5 * 2.5)
    assert back.params[2][name][0, 0] == pytest.approx(0.75)
    alone = mix_back(made, m, [1], ctx)
    assert alone.params[0] is not params[0] or torch.equal(alone.params[0][name], params[0][name])
    assert torch.equal(alone.params[2][name], params[2][name])  # only those who have just trained
    assert mix_back(rule(), m, [0, 1, 2], ctx) is m


# ------------------------------------------------------------------------------- what only the weak know of


def test_of_each_class_those_are_heard_who_learnt_from_it():
    """The first model never saw class 1 and is sure of class 0; the second saw 10 rows of each.

    Class 0: .9 * 30/40 + .2 * 10/40 = .725; class 1: .8 * 10/10; divided by their sum.
    """
    said = torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]])
    found = heed(said, torch.tensor([[30.0, 0.0], [10.0, 10.0]]))
    torch.testing.assert_close(found, torch.tensor([[0.725, 0.8]]) / 1.525)
    nobody = heed(said, torch.zeros(2, 2))
    torch.testing.assert_close(nobody, torch.tensor([[0.55, 0.45]]))


def test_devices_use_their_tier_and_all_poorer_ones():
    sim = run()
    m = sim.points[sim.root].own.state.model
    works = [work for n, place in m.places.items() for work in (place, *m.helps.get(n, ()))]
    rows = [sum(work.rows for work in works if work.tier == f) for f in range(3)]
    assert m.knows.sum(1).tolist() == pytest.approx(rows)  # of all classes, by members and helpers
    rich = next(n for n, place in m.places.items() if place.tier == 0)
    poor = next(n for n, place in m.places.items() if place.tier == 2)
    assert list(sim.serve(rich)) == ["known", "tier"]
    assert len(sim.serve(rich)["known"].job.objective.others) == 2
    assert sim.serve(poor)["known"].job.objective.others == ()
    of_poor = {
        r["view"]: r["value"] for r in sim.records if r["metric"] == "accuracy" and r.get("node") == poor
    }
    assert of_poor["known"] == of_poor["tier"]  # there is nothing poorer
    assert list(sim.serve(sim.root)) == [f"tier {f}" for f in range(3)] + [f"known {f}" for f in range(3)]


def test_labels_are_counted_only_where_they_are_used():
    _, m, ctx = formed()
    blank = dataclasses.replace(m, known={}, places={}, sizes=())
    for use, count in (("known", 12), ("tier", 0)):
        asked = [task.job for task in tasks(rule(use=use).plan(blank, "measure", ctx)[1])]
        assert sum(isinstance(job, LabelCounts) for job in asked) == count
        assert len(asked) == 12 + count
    assert list(run(use="tier").serve(0)) == ["tier"]


# ---------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"mixing": {"back": 1.5}}, "mixing.back = 1.5: must be between 0"),
        ({"share": "up"}, "share = 'up'"),
        ({"use": "all"}, "use = 'all'"),
        ({"admission": {"judge": "abel"}}, "admission.judge = 'abel': .*able"),
        ({"schedule": {"head_start": "some"}}, "schedule.head_start = 'some'"),
    ],
)
def test_bad_settings_are_refused(params, said):
    with pytest.raises(ConfigError, match=rf"algorithms\.fedrac\.{said}"):
        algorithms.make("fedrac", LOCAL, **params)


def test_labels_are_not_asked_for_with_privacy():
    private = dataclasses.replace(LOCAL, privacy=Private(1.0, 0.1))
    with pytest.raises(ConfigError, match=r"use = 'known': asks devices for their labels.*take use = 'tier'"):
        algorithms.make("fedrac", private)
    assert math.isfinite(algorithms.make("fedrac", private, use="tier").local.privacy.clip)

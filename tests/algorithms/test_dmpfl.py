import dataclasses
import math
import warnings

import pytest
import torch
from federations import LOCAL, LOOP, STACKED, finished, small, values, weights
from support import Desk, close, local, notes, tasks

from potluck import algorithms
from potluck.algorithms.dmpfl.device import (
    Deferral,
    MaskedTraining,
    adjust,
    blend,
    count_open,
    from_bits,
    mask_largest,
    pack,
    pack_model,
    spread,
    to_bits,
)
from potluck.core.errors import ConfigError
from potluck.core.job import ModelSpec
from potluck.core.messages import Lost, Reply, Spent
from potluck.core.rule import Got
from potluck.core.trees import nbytes
from potluck.execute.plan import ExecutionPlan
from potluck.execute.reference import Item, train
from potluck.jobs import SGD, Adam, Train, use_model

SPEC = ModelSpec()
SHAPES = (("c", (2, 2)),)
CORNERS = torch.tensor([[True, False], [False, True]])
TOP = torch.tensor([[True, True], [False, False]])


def table(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def flags(text):
    return torch.tensor([c == "1" for c in text])


def model(c, b=(0.0, 0.0)):
    return {"a": table([1.0], [2.0]), "c": table(*c), "b": table(*b)}


class Small:
    """Two layers: h = a x, logits = c h + b; only c is masked."""

    ops, nbytes, classes, head_names = 6, 64, 2, ("c", "b")

    def __init__(self, c=((0.3, -0.1), (0.2, 0.9))):
        self.c = c

    def init(self, key):
        return model(self.c)

    def __call__(self, params, x, key=None):
        return x @ params["a"].T @ params["c"].T + params["b"]


NETS = {SPEC: Small()}
LEARN = Train(SPEC, optim=SGD(0.5), batch=4)


def rule(**params):
    return algorithms.make("dmpfl", LEARN, **{"rounds": 8, "clients": 3} | params)


def work(phase, sent, keep=None, x=(1.0,), y=(1,), epochs=1, **more):
    job = dataclasses.replace(LEARN, objective=MaskedTraining(phase, SHAPES, **more), epochs=epochs)
    return train(Item(job, local(list(x), list(y), sent, keep, models=NETS)))


def sent(c=((1.0, 0.0), (0.0, 1.0)), mask=CORNERS, **more):
    return {**pack_model(model(c), {"c": mask}, 0.5), **more}


def kept(params, mask, turn=-1):
    return {"params": {"c": table(*params)}, "mask": {"c": mask}, "turn": torch.tensor(turn)}


# ----------------------------------------------------------------------------------------------------- masks


def test_open_places_are_counted_rounding_the_closed_ones_up():
    assert [count_open((2, 5), s) for s in (0.0, 0.5, 0.7, 0.75, 0.99)] == [10, 5, 3, 2, 1]
    assert count_open((3,), 0.5) == 1  # 3 - ceil(1.5)


def test_the_largest_are_chosen_and_equal_ones_by_place():
    assert mask_largest(table(1.0, 5.0, 2.0, 4.0), 2).tolist() == [False, True, False, True]
    assert mask_largest(table(3.0, 3.0 + 1e-15, 3.0), 2).tolist() == [
        True,
        True,
        False,
    ]  # rounding doesn't choose
    assert mask_largest(table([0.0, 1.0], [2.0, 3.0]), torch.tensor(3)).tolist() == [
        [False, True],
        [True, True],
    ]


def test_bits_and_values_there_and_back():
    mask = flags("1001000001")
    assert to_bits(mask).tolist() == [1 + 8, 2]  # place 0 and 3; place 9
    assert to_bits(mask).dtype == torch.uint8
    assert torch.equal(from_bits(to_bits(mask), (10,)), mask)
    numbers = torch.arange(10.0) + 1
    assert pack(numbers, mask, 3).tolist() == [1.0, 4.0, 10.0]
    assert spread(pack(numbers, mask, 3), mask).tolist() == [1, 0, 0, 4, 0, 0, 0, 0, 0, 10]
    # A false mask, with more open places than values: the last one again, rather than an error.
    assert spread(pack(numbers, mask, 3), torch.ones_like(mask)).tolist() == [1, 4, *[10] * 8]


def test_a_device_uses_shared_weights_where_both_masks_are_open_and_own_ones_elsewhere():
    shared, own = table(1.0, 2.0, 0.0, 0.0), table(10.0, 20.0, 30.0, 40.0)
    theta = blend(shared, flags("1100"), own, flags("1010"))
    assert theta.tolist() == [1.0, 0.0, 30.0, 0.0]  # w_g (m_g and m_c) + w_c (m_c - m_g)


def test_the_smallest_weights_give_way_to_the_largest_slopes():
    mask, big = flags("11110000"), table(4.0, -1.0, 3.0, -2.0, 0.0, 0.0, 0.0, 0.0)
    slopes = table(0.0, 0.0, 0.0, 0.0, 0.1, -0.9, 0.5, 0.0)

    def to(share):
        return "".join(str(int(m)) for m in adjust(mask, big, slopes, torch.tensor(share)))

    assert to(0.5) == "10100110"  # half of 4: |-1| and |-2| go, |-0.9| and 0.5 come
    assert to(0.3) == "10100110"  # 1.2 is rounded up
    assert to(0.25) == "10110100"
    assert to(0.0) == "11110000"
    assert to(1.0) == "10001110"  # only three were reached by a gradient, so one stays


def test_ever_fewer_places_are_exchanged():
    r = rule(rounds=100)
    assert r.share(0) == pytest.approx(0.7)
    assert r.share(25) == pytest.approx(0.35 * (1 + math.sqrt(0.5)))
    assert r.share(50) == pytest.approx(0.35)
    assert r.share(100) == pytest.approx(0.0)
    assert r.share(130) == pytest.approx(0.0)  # a longer run doesn't begin anew


def test_phases_are_a_half_and_two_quarters_of_each_turn():
    letters = "".join(rule().phase(n)[0][0] for n in range(10))
    assert letters == "ddgpddgppp"
    assert [rule().phase(n)[1] for n in (0, 3, 4, 7, 9)] == [0, 0, 1, 1, 1]
    r = rule(rounds=9)  # 4.5 a turn: from 0, 2, 3 and from 4, 6, 7
    assert "".join(r.phase(n)[0][0] for n in range(9)) == "ddgpddgpp"
    assert "".join(rule(turns=1).phase(n)[0][0] for n in range(8)) == "ddddggpp"


def test_a_turn_has_four_rounds_at_least():
    def letters(rounds, turns=2):
        return "".join(rule(rounds=rounds, turns=turns).phase(n)[0][0] for n in range(rounds))

    assert letters(7) == "dddggpp"  # one turn: half of 7 is 3.5, three quarters are 5.25
    assert letters(4) == "ddgp"
    assert letters(8, turns=5) == "ddgpddgp"
    assert [letters(n) for n in (1, 2, 3)] == ["d", "dd", "ddd"]  # too few for all three phases


def test_where_nobody_knows_the_runs_rounds_phases_are_cut_from_100():
    r = rule(rounds=None)
    assert [r.phase(n)[0] for n in (24, 25, 36, 37, 49, 50)] == [
        *("dual", "generic", "generic"),  # 25 dual ones, until 37.5 generic ones
        *("personal", "personal", "dual"),
    ]
    assert r.share(50) == pytest.approx(0.35)


# --------------------------------------------------------------------------------------------------- devices


def test_dual_training_moves_open_places_and_keeps_the_slopes_of_closed_ones():
    # Logits at x = 1: c (1, 2) = (1, 2). With y = 1 their gradient is (p, -p), p = s(-1), and that of c is
    # [[p, 2p], [-p, -2p]].
    p = 1 / (1 + math.exp(1))
    done = work("dual", sent())
    assert close(done.keep["params"], {"c": table([1 - p / 2, -p], [p / 2, 1 + p])})
    assert torch.equal(done.keep["mask"]["c"], CORNERS)
    # a's gradient: c^T (p, -p) x = (p, -p)
    expected = {"a": table([-p / 2], [p / 2]), "c": table(-p / 2, p), "b": table(-p / 2, p / 2)}
    assert close(done.body["delta"], expected)
    assert done.body["bits"]["c"].tolist() == [9]  # places 0 and 3


def test_closed_places_count_as_zero_however_far_their_slopes_have_gone():
    done, c, a, b = work("dual", sent(), epochs=3), *(model([[1.0, 0.0], [0.0, 1.0]])[n] for n in "cab")
    for _ in range(3):
        h = a[:, 0]
        slope = (c @ h + b).softmax(0) - table(0.0, 1.0)
        a, b, c = (
            a - 0.5 * (c.T @ slope)[:, None],
            b - 0.5 * slope,
            c - 0.5 * torch.outer(slope, h) * CORNERS,
        )
    assert torch.allclose(done.keep["params"]["c"][CORNERS], c[CORNERS], rtol=0, atol=1e-12)
    assert done.keep["params"]["c"][~CORNERS].abs().min() > 0.1


def test_dual_training_starts_from_shared_and_own_weights_and_sends_the_own_ones_whole():
    memory = kept([[9.0, 3.0], [0.2, 0.5]], TOP)
    done = work("dual", sent(), memory)
    # theta_c = [[1, 3], [0, 0]]: logits (7, 0) at x = 1, so the gradient for c is [[q, 2q], ...], q = s(7).
    q = 1 / (1 + math.exp(-7))
    assert close(done.body["delta"]["c"], table(-q / 2, 3 - q))  # from w_g = 1; from nothing
    assert done.body["bits"]["c"].tolist() == [3]
    assert close(done.keep["params"], {"c": table([1 - q / 2, 3 - q], [q / 2, q])})


def test_a_mask_is_adjusted_before_training_by_what_was_kept():
    memory = kept([[9.0, 3.0], [0.2, 0.5]], TOP)
    share = torch.tensor(0.5, dtype=torch.float64)
    done = work("dual", sent(share=share), memory, adjusts=True)
    # Of 2 places 1 goes: of theta_c = 1 and 3 the 1, although 9 was kept. Of slopes 0.2 and 0.5 the 0.5 comes
    assert done.keep["mask"]["c"].tolist() == [[False, True], [False, True]]
    # The new place is open in the global mask too, so it starts from w_g = 1: logits (6, 2) at x = 1.
    q = 1 / (1 + math.exp(-4))
    assert close(done.keep["params"], {"c": table([-q / 2, 3 - q], [q / 2, 1 + q])})
    # Where the global mask is closed, it starts from 0, not from the slope: logits (6, 0).
    below = sent([[1.0, 0.0], [1.0, 0.0]], torch.tensor([[True, False], [True, False]]), share=share)
    q = 1 / (1 + math.exp(-6))
    done = work("dual", below, memory, adjusts=True)
    assert close(done.keep["params"], {"c": table([-q / 2, 3 - q], [q / 2, q])})


def test_without_being_due_a_mask_stays():
    done = work("dual", sent(), kept([[9.0, 3.0], [0.2, 0.5]], TOP))
    assert torch.equal(done.keep["mask"]["c"], TOP)


def test_a_device_that_kept_nothing_has_the_shared_mask_and_adjusts_nothing():
    share = torch.tensor(0.7, dtype=torch.float64)
    done = work("dual", sent(share=share), adjusts=True)
    assert torch.equal(done.keep["mask"]["c"], CORNERS)
    assert close(done.body["delta"], work("dual", sent()).body["delta"])


def test_generic_training_is_of_the_shared_model_and_leaves_no_trace():
    p = 1 / (1 + math.exp(1))
    done = work("generic", sent(), kept([[9.0, 3.0], [0.2, 0.5]], TOP))
    assert close(
        done.body["delta"], {"a": table([-p / 2], [p / 2]), "c": table(-p / 2, p), "b": table(-p / 2, p / 2)}
    )
    assert done.keep is None
    assert set(done.body) == {"delta"}


def test_personal_training_moves_what_is_own_alone_and_sends_none_of_it():
    memory = kept([[9.0, 3.0], [0.2, 0.5]], TOP, turn=1)
    done = work("personal", sent(turn=torch.tensor(1)), memory)
    q = 1 / (1 + math.exp(-7))  # logits (7, 0), as above; only place 1 is in m_c - m_g
    assert close(done.keep["params"], {"c": table([9.0, 3 - q], [0.2, 0.5])})
    assert done.body["delta"] == {}
    assert float(done.body["loss"]) == pytest.approx(math.log(1 + math.exp(7)))
    # In a new turn it starts from 0: logits (1, 0).
    done = work("personal", sent(turn=torch.tensor(2)), memory)
    q = 1 / (1 + math.exp(-1))
    assert close(done.keep["params"], {"c": table([9.0, -q], [0.2, 0.5])})
    assert int(done.keep["turn"]) == 2


@pytest.mark.parametrize("optim", [SGD(0.5, momentum=0.9, weight_decay=0.1), Adam(0.1)])
def test_frozen_places_stay_whatever_the_optimiser_does(optim):
    job = dataclasses.replace(LEARN, objective=MaskedTraining("personal", SHAPES), epochs=3, optim=optim)
    memory = kept([[9.0, 3.0], [0.2, 0.5]], TOP, turn=1)
    done = train(Item(job, local([1.0], [1], sent(turn=torch.tensor(1)), memory, models=NETS)))
    c = done.keep["params"]["c"]
    assert float(c[0, 1]) != 3.0
    assert torch.equal(c[[0, 1, 1], [0, 0, 1]], table(9.0, 0.2, 0.5))


def test_what_travels_is_values_at_open_places_and_bits():
    dense = 2 * 8 + 2 * 8  # a and b
    assert nbytes(sent()) == dense + 2 * 8 + 1
    up = {}
    for phase in ("dual", "generic", "personal"):
        job = dataclasses.replace(LEARN, objective=MaskedTraining(phase, SHAPES))
        up[phase] = nbytes(job.cost(local([1.0], [1], sent(), models=NETS)).sends)
    assert up == {"dual": dense + 16 + 1, "generic": dense + 16, "personal": 8}


# ---------------------------------------------------------------------------------------------------- server


def start(**params):
    r, desk = rule(**params), Desk(models=NETS)
    return r, desk, r.start(desk)


def vote(task, c, mask, weight, a=0.0):
    """A reply whose weights at the open places are c (what was sent had the corners, 0.3 and 0.9)."""
    full, shared = table(*c), table([0.3, 0.0], [0.0, 0.9])
    values = {"a": table([a], [0.0]), "c": pack(full - shared, mask, 2), "b": table(0.0, 0.0)}
    return Reply(task, {"delta": values, "bits": {"c": to_bits(mask)}}, weight, {}, Spent())


def heard(reply, desk):
    return dataclasses.replace(reply, body=reply.task.job.unpack(reply.body, reply.task.send, desk.models))


def test_the_mask_begins_with_the_largest_weights():
    _, _, m = start()
    assert torch.equal(m.mask["c"], CORNERS)  # of 0.3, -0.1, 0.2, 0.9
    assert m.params["c"].tolist() == [[0.3, 0.0], [0.0, 0.9]]
    assert set(m.mask) == {"c"}  # the first layer and biases have none


def test_places_with_half_of_the_votes_stay_and_are_averaged_over_their_owners():
    r, desk, m = start()
    m, commands = r.plan(m, None, desk)
    one, two, three = tasks(commands)
    left = torch.tensor([[True, False], [True, False]])
    replies = [
        vote(one, [[1.0, 0.0], [0.0, 3.0]], CORNERS, 1.0, a=4.0),
        vote(two, [[2.0, 0.0], [5.0, 0.0]], left, 1.0),
        vote(three, [[6.0, 7.0], [0.0, 0.0]], TOP, 2.0),
    ]
    m, _ = r.merge(m, None, Got([heard(x, desk) for x in replies], []), desk.later())
    # Votes of 4: all for place 0, 2 for place 1 (just enough), 1 each for places 2 and 3.
    # Place 0: (1 + 2 + 2 x 6) / 4; place 1: 7, of its one owner.
    assert torch.equal(m.mask["c"], TOP)
    assert close(
        m.params, {"a": table([2.0], [2.0]), "c": table([3.75, 7.0], [0.0, 0.0]), "b": table(0.0, 0.0)}
    )
    assert m.round == 1


def test_too_few_votes_are_filled_up_and_too_many_are_cut_by_weight():
    r, desk, m = start(votes=0.6)
    m, commands = r.plan(m, None, desk)
    one, two, three = tasks(commands)
    replies = [
        vote(one, [[2.0, 0.0], [0.0, 1.0]], CORNERS, 3.0),
        vote(two, [[2.0, 1.0], [0.0, 0.0]], TOP, 2.0),
    ]
    after, _ = r.merge(m, None, Got([heard(x, desk) for x in replies], [Lost(three, "late")]), desk.later())
    assert torch.equal(after.mask["c"], CORNERS)  # 3 of 5 are just enough
    replies[0] = dataclasses.replace(replies[0], weight=2.5)
    after, _ = r.merge(m, None, Got([heard(x, desk) for x in replies], []), desk.later())
    assert torch.equal(after.mask["c"], CORNERS)  # place 3 has too few of the votes, but more than others
    assert close(after.params["c"], table([2.0, 0.0], [0.0, 0.0]))
    many = dataclasses.replace(r, votes=0.2)
    after, _ = many.merge(
        m,
        None,
        Got([heard(replies[0], desk), heard(vote(two, [[2.0, 1.5], [0, 0]], TOP, 2.0), desk)], []),
        desk,
    )
    assert torch.equal(after.mask["c"], TOP)  # three places: 2, 1.5 and 1


def test_phases_ask_for_different_work_and_personal_ones_change_nothing_here():
    r, desk, m = start()
    asked, told = [], []
    for _ in range(8):
        m, commands = r.plan(m, None, desk)
        job = tasks(commands)[0].job.objective
        asked.append((job.phase, job.adjusts))
        replies = []
        for task in tasks(commands):
            body = {"delta": {}, "loss": torch.tensor(1.0)}
            if job.phase != "personal":
                c = [[0.3, 0.0], [0.0, 0.9]]
                body = vote(task, c, CORNERS, 1.0).body
            if job.phase == "generic":
                body = {"delta": {**body["delta"], "c": table(0.0, 1.0)}}
            replies.append(heard(Reply(task, body, 1.0, {}, Spent()), desk))
        before, desk = m, desk.later(busy=set())
        m, commands = r.merge(m, None, Got(replies, []), desk)
        told += notes(commands)
        if job.phase == "generic":
            assert float(m.params["c"][1, 1] - before.params["c"][1, 1]) == pytest.approx(1.0)
            assert torch.equal(m.mask["c"], before.mask["c"])
        if job.phase == "personal":
            assert m.params is before.params
    dual, due = ("dual", False), ("dual", True)
    assert asked == [
        dual,
        due,
        ("generic", False),
        ("personal", False),
        due,
        dual,
        ("generic", False),
        ("personal", False),
    ]
    assert [phase for _, phase in told] == ["generic", "personal", "dual", "generic", "personal"]


def test_a_round_without_replies_leaves_the_model():
    r, desk, m = start()
    m, commands = r.plan(m, None, desk)
    after, _ = r.merge(m, None, Got([], [Lost(t, "gone") for t in tasks(commands)]), desk.later())
    assert after.params is m.params
    assert after.round == 1


# ------------------------------------------------------------------------------------------------ served


def test_rows_on_which_the_outputs_are_unlike_go_to_the_global_model():
    general = {"a": table([1.0], [0.0]), "c": table([0.0, 0.0], [0.0, 0.0]), "b": table(0.0, 1.0)}
    shared = {"params": general, "mask": {"c": ~TOP}}
    memory = kept([[2.0, 0.0], [9.0, 9.0]], TOP)
    here = local([1.0, 0.25, -1.0], [0, 1, 1], shared, memory, models=NETS, test=[0, 1, 2])
    job = use_model(SPEC, Deferral())
    params, held = job.begin(NETS[SPEC], shared, memory, None)
    assert params["c"].tolist() == [[2.0, 0.0], [0.0, 0.0]]
    batch = type("Rows", (), {"x": here.x, "y": here.y})
    scores = job.score(NETS[SPEC], params, batch, held)
    # Own logits (2x, 1), the global ones (0, 1): cosines 1/sqrt(5) = 0.447, 1/sqrt(1.25) = 0.894 and 0.447.
    assert scores["personal"].tolist() == [0, 1, 0]
    assert scores["accuracy"].tolist() == [0, 1, 1]
    assert scores["own"].tolist() == [1, 1, 1]
    assert scores["general"].tolist() == [0, 1, 1]
    lower = use_model(SPEC, Deferral(0.4)).score(NETS[SPEC], params, batch, held)
    assert lower["personal"].tolist() == [1, 1, 1]
    assert lower["accuracy"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ("clients", 0),
        ("rounds", 0),
        ("turns", 0),
        ("sparsity", 1.0),
        ("sparsity", -0.1),
        ("alpha", 1.1),
        ("every", 0),
        ("votes", 0.0),
        ("threshold", 1.5),
        ("threshold", -1.5),
    ],
)
def test_bad_parameters_are_named(key, number):
    with pytest.raises(ConfigError, match=rf"{key} = {number}"):
        rule(**{key: number})


def test_models_without_a_layer_to_mask_and_parts_are_refused():
    class Flat(Small):
        def init(self, key):
            return {n: p for n, p in model(self.c).items() if n != "a"}

    with pytest.raises(ConfigError, match="no layer to mask"):
        rule().start(Desk(models={SPEC: Flat()}))
    with pytest.raises(ConfigError, match=r"train\.part = 'head'"):
        algorithms.make("dmpfl", dataclasses.replace(LEARN, part="head"))


# ------------------------------------------------------------------------------------------- in a federation


def run(plan, optim=LOCAL.optim, rounds=8, **params):
    where, job = small(compute=4e5), dataclasses.replace(LOCAL, optim=optim, epochs=2)
    rule = algorithms.make("dmpfl", job, rounds=8, **{"clients": 6, "every": 1} | params)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a stack that is trained one by one says so
        return finished(where, rule, rounds=rounds, plan=plan)


def masks(sim):
    keeps = [sim.memories.get(node, None) for node in range(10)]
    return [None if k is None else [m.tolist() for m in k["mask"].values()] for k in keeps]


@pytest.mark.parametrize("optim", [SGD(0.2), SGD(0.1, momentum=0.9, weight_decay=0.01), Adam(0.01)])
def test_stacks_train_all_phases_and_find_the_same_masks(optim):
    loop = run(LOOP, optim, rounds=5)  # dual, dual, generic, personal, dual
    captured = ExecutionPlan("stacked", chunk=3, graphs=True)
    for plan in (STACKED, captured) if optim == SGD(0.2) else (STACKED,):
        stacked = run(plan, optim, rounds=5)
        assert masks(stacked) == masks(loop)
        torch.testing.assert_close(weights(stacked), weights(loop), rtol=0, atol=1e-10)
        for node in range(10):
            one, other = stacked.memories.get(node, None), loop.memories.get(node, None)
            assert close(one["params"], other["params"], 1e-10)


def test_masks_part_and_stay_equally_large():
    sim = run(LOOP)
    found = [m for m in masks(sim) if m is not None]
    assert len({str(m) for m in found}) > 3
    state = sim.points[sim.root].own.state.model
    (size,) = {int(m.sum()) for m in state.mask.values()}
    assert {int(torch.tensor(m).sum()) for device in found for m in device} == {size}
    assert all(bool((state.params[n][~m] == 0).all()) for n, m in state.mask.items())


def test_who_never_took_part_uses_the_global_model():
    sim = run(LOOP, rounds=1, clients=3)
    new = [n for n in range(10) if sim.memories.get(n, None) is None]
    assert len(new) == 7
    for node in new:
        assert list(sim.serve(node)) == ["dmpfl", "global"]
        own, general, personal = (
            values(sim, k, node=node, view="dmpfl")[-1] for k in ("own", "general", "personal")
        )
        assert own == general == values(sim, "accuracy", node=node, view="global")[-1]
        assert personal == 1.0


def test_own_models_fit_own_rows_better_than_the_global_one():
    sim = run(LOOP, SGD(0.3), clients=10)
    better = 0.0
    for node in range(10):
        task, at = sim.serve(node)["dmpfl"], sim.devices.rows(node)
        keep = sim.memories.get(node, None)
        params, held = task.job.begin(sim.federation.models[task.job.model], task.send, keep, None)
        pool = sim.federation.pool
        batch = type("Rows", (), {"x": pool.x[torch.tensor(at)], "y": pool.y[torch.tensor(at)]})
        scores = task.job.score(sim.federation.models[task.job.model], params, batch, held)
        better += float(scores["own"].mean() - scores["general"].mean()) / 10
    assert better > 0.0

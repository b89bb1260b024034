"""A step that was seen once is done again as the same operations in the same memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_executors import close
from test_stack import clients

from potluck.core.codec import value
from potluck.execute.captured.cpu import trace
from potluck.execute.reference import train
from potluck.execute.vectorised.executor import Stacked
from potluck.jobs import SGD, Objective, Train


def again(step, fixed, tables):
    """Steps that were seen, beside the same ones computed; both start from what `fixed` holds."""
    plain = [t.clone() for t in fixed]
    start = [t.clone() for t in fixed]
    seen = trace(step, fixed, [t[0] for t in tables], [])
    for t, value_then in zip(fixed, start, strict=True):
        t.copy_(value_then)
    for s in (*range(len(tables[0])), 0):
        seen.bound([t[s] for t in tables])()
        step(*plain, *(t[s] for t in tables))
    return seen, list(zip(fixed, plain, strict=True))


def agree(step, fixed, tables):
    _, pairs = again(step, fixed, tables)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


def sums(total, x):  # memory that must be blank at every step
    out = x.new_zeros(4)
    out[:3] += x
    out.narrow(0, 1, 3).add_(x)
    total.add_(out)


def several(total, x):  # operations that make more than one tensor, and of other types
    top, place = x.topk(2)
    both = torch.stack(x.sort(descending=True).values.split(2)[0].unbind())
    total[:2] += top * place + both


def constants(total, x):  # made once, but for the one that is changed
    ones, changed = torch.ones(3), torch.full((3,), 2.0)
    changed += x
    total[:3] += ones * 3 + changed + torch.arange(3)


def lists(total, x):
    moved = torch._foreach_add([x, x * 2], [x, x])
    torch._foreach_mul_(moved, 0.5)
    torch._foreach_add_([total[:3], total[1:]], moved)


def gradients(total, x):
    w = total[:3].detach().requires_grad_()
    loss = (torch.relu(w * x) + torch.where(x > 0, w, -w).exp().log1p()).sum()
    (slope,) = torch.autograd.grad(loss, w)
    total[:3] -= 0.1 * slope


def mapped(total, x):
    total[:3] += torch.vmap(lambda a: torch.nn.functional.softmax(a * x, 0).max())(x)


def outside(total, x):  # memory that no operation made
    weight = torch.tensor([0.5, 0.5, 0.5])
    weight *= 2
    total[:3] += weight * x


def chosen(total, x):  # as many as there are
    total[0] += x[x > 0].sum() + (x < 1).nonzero().sum()


def retyped(total, x):
    total[:2] += x.view(torch.int16)[2:4].float().log1p_().abs_().nan_to_num_()


def picked(total, x):  # an index that isn't there before it is copied
    index = torch.empty(2, dtype=torch.int64)
    index.copy_(torch.arange(2) + 1)
    total[:2] += x.index_select(0, index)


def besides(total, x):  # changes something and makes something
    mean, spread = x.new_zeros(1), x.new_ones(1)
    out, *_ = torch.ops.aten._native_batch_norm_legit(x.view(3, 1), None, None, mean, spread, True, 0.1, 1e-5)
    total[:3] += out.flatten() + mean


STEPS = (sums, several, constants, lists, gradients, mapped, outside, chosen, retyped, picked, besides)


@pytest.mark.parametrize("step", STEPS)
@settings(max_examples=10, deadline=None)
@given(numbers=st.lists(st.floats(-3, 3, width=32), min_size=9, max_size=9, unique=True))
def test_they_come_to_the_same(step, numbers):
    agree(step, [torch.ones(4)], [torch.tensor(numbers).view(3, 3)])


def test_empty_tensors_are_no_memory():
    def step(total, nothing, x):
        moved = torch._foreach_add([x.clone(), nothing], [x, nothing])
        total[:3] += moved[0]
        nothing.mul_(2)

    agree(step, [torch.ones(4), torch.zeros(0)], [torch.arange(6.0).view(2, 3)])


def test_results_that_nobody_needs_are_not_computed():
    def step(total, x):
        (x @ x.t()).exp().sum()
        total.add_(x.sum())

    seen, _ = again(step, [torch.zeros(())], [torch.ones(2, 3, 3)])
    calls = seen.bound.args[0]
    assert [call.op.overloadpacket.__name__ for call, _ in calls] == ["sum", "add_"]


def test_what_it_does_not_look_at_is_known():
    used, idle, total = torch.ones(3), torch.ones(3), torch.zeros(3)
    seen = trace(lambda a, b, c, x: c.add_(a * x), [used, idle, total], [torch.ones(3)], [])
    assert used.data_ptr() in seen.reads
    assert idle.data_ptr() not in seen.reads


def test_constants_are_made_once_unless_they_are_changed():
    def step(total, x):
        total.add_(torch.arange(3.0) * x)
        total.add_(torch.ones(3).mul_(x))

    seen, _ = again(step, [torch.zeros(3)], [torch.ones(2, 3)])
    made = [call.op.overloadpacket.__name__ for call, _ in seen.bound.args[0]]
    assert made == ["mul", "add_", "ones", "mul_", "add_"]


@pytest.mark.parametrize("draw", [torch.rand_like, lambda x: torch.rand(9)], ids=["like", "of nothing"])
def test_a_random_step_draws_anew(draw):
    noise = trace(lambda total, x: total.add_(draw(x)), [total := torch.zeros(9)], [torch.ones(9)], [])
    run, found = noise.bound([torch.ones(9)]), []
    for _ in range(2):
        total.zero_()
        run()
        found.append(total.clone())
    assert not torch.equal(*found)


def test_a_step_that_goes_by_its_numbers_is_computed():
    def step(total, x):
        total.add_(x if float(x.sum()) > 0 else 10.0)

    agree(step, [torch.zeros(2)], [torch.tensor([[1.0, 2.0], [-3.0, 1.0]])])


@value
class Numbers(Objective):
    """Leaves torch, so that nothing of it can be seen."""

    def loss(self, net, params, batch, held):
        out = net(params, batch.x, batch.key)
        scale = float(abs(batch.x.detach().numpy()).mean())
        return (out * scale).square().sum(), {}


@pytest.mark.parametrize("chunk", [1, 64])
def test_a_loss_that_leaves_torch_is_not_captured(chunk):
    todo, stacked = (
        clients("linear", Train(objective=Numbers(), optim=SGD(1e-4), batch=4)),
        Stacked(chunk, graphs=True),
    )
    with pytest.warns(UserWarning, match="can't be trained as a stack"):
        found = stacked.run(todo)
    assert all(map(close, found[:4], [train(item) for item in todo[:4]]))

"""Worker processes: shared memory that is neither mixed up nor left behind, and what they are given when."""

import gc
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from federations import LOCAL, SIZES, SPEC, small

from potluck.core import keys
from potluck.core.codec import value
from potluck.core.job import Local, ModelSpec, Rows
from potluck.core.trees import leaves, tmap, weighted_sum
from potluck.execute.pool.arena import Arena, Lender, pack, unpack, view
from potluck.execute.pool.processes import Workers
from potluck.execute.pool.stacks import StackedWorkers
from potluck.execute.reference import Item, train
from potluck.execute.vectorised.executor import Stacked
from potluck.jobs import SGD, Correct, Objective

pytestmark = pytest.mark.slow

PROC = Path("/proc/self/fd")
linux = pytest.mark.skipif(not PROC.exists(), reason="asks /proc")


@value
class Various(Objective):
    """Sends and keeps trees of many kinds."""

    def finish(self, delta, sent, keep, held, trace):
        w = delta["0.weight"]
        more = {
            "plain": [1, "two", None, (3.5, True)],
            "empty": torch.zeros(0, 3),
            "scalar": w.sum(),
            "turned": w.t(),
            "half": w.to(torch.bfloat16),
            "signs": (w > 0, w.sign().to(torch.int8)),
            "twice": {"a": w, "b": w},
            "array": np.arange(5),
        }
        return more, None if sent["mark"] % 2 else {"mine": sent["kept"]}


@value
class Lies(Objective):
    """Sends something else than it promises."""

    def sends(self, params):
        return {"first": torch.zeros(2), "second": torch.zeros(2)}

    def finish(self, delta, sent, keep, held, trace):
        return {"first": torch.ones(3), "second": torch.ones(2), "third": torch.ones(2)}, None


@value
class Narrow(Objective):
    """A loss that doesn't depend on most parameters."""

    def loss(self, net, params, batch, held):
        loss = params["0.bias"].square().sum()
        return loss, {"loss": loss.detach()}


@value
class Tells(Objective):
    """Writes down that it begins."""

    def hold(self, sent, keep, own):
        with open(sent["file"], "a") as file:
            file.write(f"{sent['mark']}\n")


@value
class Slow(Objective):
    """Takes its time."""

    def hold(self, sent, keep, own):
        time.sleep(60)


@value
class Unsendable(Objective):
    """Its result can't leave the process."""

    def finish(self, delta, sent, keep, held, trace):
        return {"made": lambda: None}, None


@value
class Holes:
    """Batches with padding at the end, in the middle, and nothing but padding."""

    def draw(self, at, batch, epochs, steps):
        index = np.arange(3 * batch).reshape(3, batch) % len(at.rows)
        weight = np.ones((3, batch), np.float32)
        weight[0, -1], weight[1, 1], weight[2] = 0, 0, 0
        return Rows(index, weight, float(len(at.rows)))

    def passes(self, at, batch, epochs, steps):
        return 3 * batch

    def most(self, at, batch):
        return float(len(at.rows))


@pytest.fixture(scope="module")
def federation():
    return small()


@pytest.fixture
def workers():
    pool = Workers(2)
    yield pool
    pool.close()


def items(federation, job, send=lambda node: {}, keep=lambda node: None):
    params = {}
    out = []
    for node in range(len(SIZES)):
        mine = job(node) if callable(job) else job
        params.setdefault(mine.model, federation.models[mine.model].init(7))
        inbox = {"params": params[mine.model], **send(node)}
        rows, seed = federation.partition.rows(node, "train"), keys.derive(3, node)
        out.append(Item(mine, Local(node, rows, inbox, keep(node), seed, federation.models, federation.pool)))
    return out


def same(a, b):
    """Byte for byte, type for type."""
    if isinstance(b, torch.Tensor):
        return type(a) is torch.Tensor and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], v) for k, v in b.items())
    if isinstance(b, list | tuple):
        return type(a) is type(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def equal(results, alone):
    return all(
        same([r.body, r.keep, dict(r.metrics)], [s.body, s.keep, dict(s.metrics)])
        and (r.weight, r.finite) == (s.weight, s.finite)
        for r, s in zip(results, alone, strict=True)
    )


# ---------------------------------------------------------------------------------------- what comes back


def test_trees_of_many_kinds_come_back_as_they_are(federation, workers):
    todo = items(
        federation,
        replace(LOCAL, objective=Various()),
        lambda n: {"mark": n, "kept": torch.full((2,), float(n))},
    )
    assert equal(workers.run(todo), [train(item) for item in todo])


def test_results_of_different_forms_in_one_batch(federation, workers):
    wide = ModelSpec(SPEC.name, width=0.05)
    todo = items(federation, lambda n: replace(LOCAL, model=(SPEC, wide)[n % 2], optim=SGD(0.1)))
    assert equal(workers.run(todo), [train(item) for item in todo])


def test_a_result_of_another_form_than_promised(federation, workers):
    todo = items(federation, replace(LOCAL, objective=Lies()))
    assert equal(workers.run(todo), [train(item) for item in todo])


def test_results_outlive_the_batches_after_theirs(federation, workers):
    batches = [
        items(
            federation,
            replace(LOCAL, objective=Correct(), optim=SGD(0.1 * k)),
            lambda n: {"control": tmap(torch.ones_like, federation.models[SPEC].init(1))},
            lambda n, k=k: tmap(lambda p: p * k, federation.models[SPEC].init(n)),
        )
        for k in range(1, 5)
    ]
    results = [workers.run(batch) for batch in batches]
    assert all(equal(r, [train(item) for item in b]) for r, b in zip(results, batches, strict=True))


def test_folding_a_batch_copies_nothing(federation, workers):
    deltas = [r.body["delta"] for r in workers.run(items(federation, LOCAL))]
    for rows in zip(*(delta.values() for delta in deltas), strict=True):
        base = rows[0]._base
        assert base.shape == (len(rows), *rows[0].shape)
        assert all(row._base is base and torch.equal(row, base[i]) for i, row in enumerate(rows))
    weights = torch.arange(1.0, len(deltas) + 1)
    apart = [tmap(torch.clone, delta) for delta in deltas]
    assert same(weighted_sum(deltas, weights), weighted_sum(apart, weights))


def test_a_result_with_nan_is_not_called_finite(federation, workers):
    todo = items(federation, lambda n: replace(LOCAL, optim=SGD(1e200 if n == 3 else 0.1), epochs=5))
    assert [r.finite for r in workers.run(todo)] == [n != 3 for n in range(len(SIZES))]


def test_what_a_loss_does_not_depend_on_stays(federation, workers):
    todo = items(federation, replace(LOCAL, objective=Narrow()))
    alone = [train(item) for item in todo]
    assert equal(workers.run(todo), alone)
    for result in alone:
        assert [name for name, d in result.body["delta"].items() if d.any()] == ["0.bias"]


def test_padding_counts_nothing_wherever_it_lies(federation, workers):
    todo = items(federation, replace(LOCAL, sampler=Holes(), batch=3))
    alone = [train(item) for item in todo]
    assert equal(workers.run(todo), alone)
    for r, s in zip(Stacked(64).run(todo), alone, strict=True):
        for x, y in zip(leaves(r.body), leaves(s.body), strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=1e-10)


# ------------------------------------------------------------------------------------------ what goes out


def test_the_longest_task_goes_first(federation, tmp_path):
    pool, file = Workers(1), tmp_path / "order"
    steps = (3, 9, 1, 7, 5, 2, 8, 4, 6, 10)  # not the rows that they have: what they draw
    pool.run(
        items(
            federation,
            lambda n: replace(LOCAL, objective=Tells(), batch=1, steps=steps[n]),
            lambda n: {"mark": n, "file": str(file)},
        )
    )
    pool.close()
    assert [steps[int(n)] for n in file.read_text().split()] == sorted(steps, reverse=True)


def test_more_workers_than_tasks(federation):
    pool = Workers(3)
    todo = items(federation, LOCAL)[:2]
    assert equal(pool.run(todo), [train(item) for item in todo])
    assert equal(pool.run(todo[:1]), [train(todo[0])])
    pool.close()


# ------------------------------------------------------------------------------------------------ shares


def shared_out(todo, count, **how):
    """What stacks of every n-th client come to in this process."""
    results = {}
    for share in range(count):
        done = Stacked(64, **how).run(todo[share::count])
        results |= dict(zip(range(share, len(todo), count), done, strict=True))
    return [results[place] for place in range(len(todo))]


@pytest.fixture
def shares():
    pool = StackedWorkers(2, Stacked(64))
    yield pool
    pool.close()


def test_what_is_stacked_with_what_depends_on_the_batch_alone(federation, shares):
    todo = items(federation, replace(LOCAL, epochs=2))
    assert len(todo) == 10
    for some in (todo, todo[:7], todo[:2], todo[:1]):
        assert equal(shares.run(some), shared_out(some, min(2, len(some))))
    for captured in (False, True):
        small = StackedWorkers(2, Stacked(2, graphs=captured))
        assert equal(small.run(todo), shared_out(todo, 6, graphs=captured))  # at most 2 clients, even shares
        small.close()


def test_shares_bring_trees_of_many_kinds_and_forms(federation, shares):
    marked = {"plain": {"mark": 3}, "kept": {"mark": 2}}
    for extra in marked.values():
        send = extra | {"kept": torch.arange(2.0)}
        todo = items(federation, replace(LOCAL, objective=Various()), lambda n, send=send: send)
        assert equal(shares.run(todo), shared_out(todo, 2))
    for job in (replace(LOCAL, objective=Lies()), lambda n: replace(LOCAL, epochs=n % 2)):
        todo = items(federation, job)
        assert equal(shares.run(todo), shared_out(todo, 2))


def test_folding_shares_copies_nothing_and_they_outlive_others(federation, shares):
    control = {"control": tmap(torch.ones_like, federation.models[SPEC].init(1))}
    batches = [
        items(federation, replace(LOCAL, objective=Correct(), optim=SGD(0.1 * k)), lambda n: control, kept)
        for k, kept in (
            (1, lambda n: None),
            (2, federation.models[SPEC].init),
            (3, federation.models[SPEC].init),
        )
    ]
    results = [shares.run(batch) for batch in batches]
    assert all(equal(r, shared_out(b, 2)) for r, b in zip(results, batches, strict=True))
    for rows in zip(*(r.body["delta"].values() for r in results[0]), strict=True):
        base = rows[0]._base
        assert base.shape == (len(rows), *rows[0].shape)
        assert all(row._base is base and torch.equal(row, base[i]) for i, row in enumerate(rows))


def test_a_share_that_does_not_fit_makes_all_smaller(federation, monkeypatch):
    from potluck.execute.vectorised import executor as module

    class Tight(module.Stack):
        def __init__(self, some, *rest):
            if len(some) > 2:
                raise torch.OutOfMemoryError("tried to allocate 1 GiB")
            super().__init__(some, *rest)

    monkeypatch.setattr(module, "Stack", Tight)
    todo, told = items(federation, LOCAL), []
    pool = StackedWorkers(2, Stacked(64), told.append)
    first, again = pool.run(todo), pool.run(todo)
    pool.close()
    assert (pool.chunk, told) == (2, [2])
    monkeypatch.undo()
    for result, alone in zip([*first, *again], 2 * [train(item) for item in todo], strict=True):
        for x, y in zip(leaves(result.body), leaves(alone.body), strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=1e-10)


@value
class Asks(Objective):
    """Looks at a tensor's value, which no map can do."""

    def penalty(self, net, params, batch, held):
        return 0.0 if float(batch.weight.sum()) > 0 else 1.0


def test_a_share_that_cannot_be_mapped_is_said_once(federation, shares):
    todo = items(federation, replace(LOCAL, objective=Asks()))
    with pytest.warns(UserWarning, match="can't be trained as a stack") as said:
        done = shares.run(todo), shares.run(todo)
    assert (len(said), len(shares.unmapped)) == (1, 1)
    assert all(equal(results, [train(item) for item in todo]) for results in done)


def test_what_a_share_cannot_send_back_is_named(federation, shares):
    with pytest.raises(RuntimeError, match=r"Train on devices \[., ., ., ., .\]: .*lambda"):
        shares.run(items(federation, replace(LOCAL, objective=Unsendable())))
    assert not shares.workers
    assert len(shares.run(items(federation, LOCAL))) == 10  # others are started


# ------------------------------------------------------------------------------------ what is left behind


def test_memory_is_used_again(federation, workers):
    def size():
        slots = [arena for w in workers.workers for slot in w.slots for arena in slot]
        arenas = [*workers.inboxes, workers.bodies.arena, *slots]
        return sum(os.fstat(arena.file).st_size for arena in arenas)

    kept = {n: federation.models[SPEC].init(n) for n in range(len(SIZES))}
    control = {"control": federation.models[SPEC].init(1)}
    todo = items(federation, replace(LOCAL, objective=Correct()), lambda n: control, kept.get)
    for _ in range(3):
        workers.run(todo)
    before, files = size(), len(os.listdir(PROC)) if PROC.exists() else 0
    for _ in range(20):
        workers.run(todo)
    assert size() == before > 0
    assert files == (len(os.listdir(PROC)) if PROC.exists() else 0)


@linux
def test_closing_gives_everything_back(federation):
    gc.collect()  # errors of other tests hold on to what they were about
    before = sorted(os.listdir(PROC))
    pool = Workers(2)
    results = pool.run(items(federation, LOCAL))
    copies = [tmap(torch.clone, r.body) for r in results]
    pool.close()
    assert all(same(r.body, c) for r, c in zip(results, copies, strict=True))
    del results
    assert sorted(os.listdir(PROC)) == before
    assert "memfd:potluck" not in Path("/proc/self/maps").read_text()


@linux
def test_workers_end_with_a_parent_that_is_killed(federation):
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            pool = Workers(2)
            pool.run(items(federation, LOCAL))
            os.write(write, " ".join(str(p.pid) for p in pool.processes).encode())
            signal.pause()
        finally:
            os._exit(1)
    pids = os.read(read, 100).split()
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    for end in (read, write):
        os.close(end)
    assert len(pids) == 2
    assert all(gone(int(pid)) for pid in pids)


def gone(pid):
    for _ in range(500):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state in "ZX":  # ended; nobody here waits for it
            return True
        time.sleep(0.01)
    return False


def test_a_batch_that_is_interrupted_leaves_nothing_to_the_next(federation, workers):
    def interrupt(*_):
        raise KeyboardInterrupt

    good = items(federation, LOCAL)
    workers.run(good)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    processes = workers.processes
    try:
        with pytest.raises(KeyboardInterrupt):
            workers.run(items(federation, replace(LOCAL, objective=Slow())))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not any(process.is_alive() for process in processes)
    assert equal(workers.run(good), [train(item) for item in good])


def test_what_cannot_be_sent_back_is_named(federation, workers):
    with pytest.raises(RuntimeError, match=r"device \d: Train: .*pickle"):
        workers.run(items(federation, replace(LOCAL, objective=Unsendable())))


def test_without_memory_files(federation, monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)  # as on macOS
    pool, todo = Workers(2), items(federation, LOCAL)
    assert equal(pool.run(todo), [train(item) for item in todo])
    pool.close()


# ------------------------------------------------------------------------------------------------- memory


def test_an_arena_grows_and_is_seen_by_both_sides():
    arena = Arena()
    first = arena.put(torch.arange(3))
    view = arena.at(first)
    large = arena.put(torch.full((1 << 20,), 2.5))
    assert large[0] % 64 == 0
    arena.at(first).mul_(10)
    assert view.tolist() == arena.at(first).tolist() == [0, 10, 20]  # the old mapping shows the same memory
    assert torch.equal(arena.at(large), torch.full((1 << 20,), 2.5))
    arena.clear()
    assert arena.put(torch.zeros(3))[0] == 0
    arena.close()
    assert view.shape == (3,)


def test_memory_is_lent_again_when_no_tensor_is_left_in_it():
    lender = Lender()
    start, memory = lender.lend(1000)
    rows = view(memory, (0, torch.float32, (10, 5))).fill_(1.5).unbind()
    del memory
    other, memory = lender.lend(1000)
    view(memory, (0, torch.float32, (250,))).fill_(2.5)
    assert other != start
    assert rows[3].tolist() == [1.5] * 5
    del rows
    larger, _ = lender.lend(1100)
    smaller, _ = lender.lend(900)
    assert larger not in (start, other)
    assert smaller == start
    lender.arena.close()


def test_memory_of_a_large_batch_is_given_back():
    def size():
        return os.fstat(lender.arena.file).st_size

    lender = Lender()
    _, memory = lender.lend(1 << 20)
    lender.lend(100)
    assert size() > 1 << 20  # still in use
    view(memory, (0, torch.uint8, (1 << 20,))).fill_(1)
    del memory
    start, memory = lender.lend(100)
    assert view(memory, (0, torch.uint8, (100,))).sum() == 0  # fresh
    assert (start, size() < 1000) == (0, True)
    lender.arena.close()


def test_messages_name_tensors_instead_of_holding_them():
    arena, table = Arena(), torch.randn(1000)
    content = {"a": table, "b": [table[:2], "text"], "c": np.arange(10_000), "d": np.arange(3)}
    message = pack(content, arena.put)
    assert len(message) < 1000
    assert same(unpack(message, arena.at), content)
    arena.close()

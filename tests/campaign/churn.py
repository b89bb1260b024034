"""Worlds in which devices come, go, forget, lie and are late: runs end, add up, and are the same again."""

import json
import math
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import torch
from federations import under_way
from interrupted import same

from campaign._worlds import draw_world
from potluck.core.errors import PotluckError
from potluck.core.messages import Lost, Reply, Task
from potluck.engine.queues import Queues
from potluck.execute.plan import ExecutionPlan
from potluck.experiment.prepare import prepare
from potluck.experiment.record_check import find_record_fault
from potluck.experiment.summary import summarise_run
from potluck.simulate.devices import Devices
from potluck.simulate.flocks import Flocks

TITLE = "worlds of loss, churn, jitter, forgetting, deadlines, attackers and drift; twice, and resumed"
COUNT, QUICK = 330, 12
PLAN = ExecutionPlan("loop")
EVENTS = 200_000  # a run of so many doesn't end
DRAWS = 20


@dataclass
class Book:
    """What became of tasks, counted beside the engine's own accounts."""

    sent: int = 0
    answered: int = 0
    cancelled: int = 0
    lost: dict = field(default_factory=dict)

    @contextmanager
    def kept(self):
        accept, end, cancel = Queues.accept, Devices.end, Devices.cancel
        accept_together, end_together = Queues.accept_together, Flocks.end

        def on_accept(queues, sender, item):
            self.sent += type(item) is Task
            accept(queues, sender, item)

        def on_accept_together(queues, sender, tasks, nodes):
            self.sent += len(tasks)
            return accept_together(queues, sender, tasks, nodes)

        def on_end_together(flocks, *given):
            replies = end_together(flocks, *given)
            self.answered += 0 if replies is None else len(replies)
            return replies

        def on_end(devices, fid):
            heard = end(devices, fid)
            event = None if heard is None else heard[1]
            if isinstance(event, Reply):
                self.answered += 1
            elif isinstance(event, Lost) and isinstance(event.what, Task):
                self.lost[event.why] = self.lost.get(event.why, 0) + 1
            return heard

        def on_cancel(devices, sender, fid, over):
            self.cancelled += 1
            cancel(devices, sender, fid, over)

        with (
            patch.object(Queues, "accept", on_accept),
            patch.object(Queues, "accept_together", on_accept_together),
            patch.object(Flocks, "end", on_end_together),
            patch.object(Devices, "end", on_end),
            patch.object(Devices, "cancel", on_cancel),
        ):
            yield


@dataclass
class Ending:
    """What is left of a run: why it ended, what it recorded, what it serves."""

    why: str
    events: int
    records: list
    served: object = None


def prepare_world(number, folder):
    """A world that is allowed; those that aren't are refused in a line."""
    for again in range(DRAWS):
        try:
            return prepare(draw_world(number, again, folder))
        except PotluckError as error:
            tell(error)
    raise AssertionError(f"none of {DRAWS} worlds is allowed")


def play(sim, most=EVENTS):
    """Let a run go on to its end, or for so many events; how many it took, and why it ended early."""
    events = 0
    try:
        if not sim.begun:
            sim.start()
        while events < most and sim.step():
            events += 1
    except PotluckError as error:
        return events, tell(error)
    return events, ""


def tell(error):
    """What somebody is told: one line."""
    assert str(error).count("\n") == 0, error
    return f"{type(error).__name__}: {error}"


def finish(sim, records):
    """Play a run to its end."""
    try:
        events, why = play(sim)
        assert sim.finished or why, f"no end after {events} events, {sim.round} rounds, {sim.now:g} seconds"
        served = None if why else {view: params for view, (_, params) in sim.find_models().items()}
    finally:
        sim.close()
    return Ending(why, events, [json.loads(line) for line in records()], served)


def attempt(number, folder):
    torch.set_num_threads(1)
    setting, book = prepare_world(number, folder), Book()
    with book.kept():
        sim = setting.start(PLAN)
        straight = finish(sim, lambda: [json.dumps(r, default=plain) for r in sim.records])
    check_accounts(sim, book)
    assert straight.records or straight.why
    check_records(straight.records)
    summarise_run(setting.experiment, straight.records, 0.0, None)
    (folder / "again").mkdir()
    again = finish(setting.start(PLAN, folder / "again"), (folder / "again" / "records.jsonl").open)
    agree(straight, again)
    if straight.events:  # else it was refused before it began
        agree(straight, resume(setting, folder / "resumed", number, straight.events))


def resume(setting, folder, number, events):
    """The same run, left at some event and gone on with."""
    folder.mkdir()
    sim = setting.start(PLAN, folder)
    _, why = play(sim, most=number * 7919 % max(1, events))
    assert not why
    sim.save()
    sim.close()
    return finish(setting.resume(PLAN, folder, lambda chunk: None), (folder / "records.jsonl").open)


def agree(one, other):
    assert one.why == other.why
    for first, second in zip(one.records, other.records, strict=False):
        assert first == second
    assert len(one.records) == len(other.records)
    assert same(one.served, other.served)


def plain(value):
    return (
        value.tolist()
        if hasattr(value, "tolist")
        else sorted(value)
        if isinstance(value, set)
        else str(value)
    )


def check_accounts(sim, book):
    """What was sent was answered, lost or called off, or is on its way where a run ended before its time."""
    flying = [f for f in under_way(sim) if type(f.item) is Task]
    assert book.sent == book.answered + sum(book.lost.values()) + book.cancelled + len(flying)
    assert not (sim.finished and flying)
    lost = sim.accounts.lost
    assert all(count <= lost.get(why, 0) for why, count in book.lost.items()), (book, lost)
    assert lost.get("late", 0) <= book.cancelled
    undone = lost.get("bad", 0) - book.lost.get("bad", 0)  # answers that could be heard, but not merged
    assert sim.accounts.tasks + undone >= book.answered
    assert all(math.isfinite(n) and n >= 0 for n in (*sim.accounts.up.values(), *sim.accounts.down.values()))
    assert math.isfinite(sim.accounts.seconds)


def check_records(records):
    """Lines that anybody can read: finite, by time, with counters that only grow and shares from 0 to 1."""
    time, counters = 0.0, {}
    for record in records:
        assert find_record_fault(record) is None, record
        assert record["time"] >= time, record
        time = record["time"]
        assert is_finite(record["value"]), record
        metric, value = record["metric"], record["value"]
        if metric in ("bytes_up", "bytes_down", "lost", "device_seconds", "tasks", "participants"):
            whose = metric, record.get("group")
            assert value >= counters.get(whose, 0), record
            counters[whose] = value
        if metric in ("accuracy", "accuracy_mean", "accuracy_worst10", "accuracy_best10", "global_accuracy"):
            assert 0 <= value <= 1, record


def is_finite(value):
    if isinstance(value, dict):
        return all(is_finite(each) for each in value.values())
    if isinstance(value, list):
        return all(is_finite(each) for each in value)
    return not isinstance(value, float) or math.isfinite(value)

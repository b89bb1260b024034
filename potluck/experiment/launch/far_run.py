"""Runs on a machine of others: each in a child of its own, in a folder of that machine, told as a stream.

Nothing is kept there. What a run has written is sent with every snapshot, and whoever asked has it; if the
machine goes, or who asked, nothing of ours is missed. Folders that were left behind go when the next run
begins there.
"""

import fcntl
import os
import pickle
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from potluck.core import safe_files
from potluck.core.errors import ConfigError
from potluck.data import Pool
from potluck.engine import snapshot
from potluck.engine.schedule import Progress
from potluck.execute.process import Failure
from potluck.execute.tune.autotune import PlanChoice
from potluck.experiment import code, folder, study_runner, toml
from potluck.experiment.launch import execution_plan, hardware, registered
from potluck.experiment.launch.child import NEWS, Child, DiedError, Tell
from potluck.experiment.launch.federations import Federations
from potluck.experiment.launch.folder_changes import FolderChanges, write_changes
from potluck.experiment.launch.follower import Done, Missing
from potluck.experiment.launch.one_run import Relay, RelayStart, compute_run
from potluck.experiment.launch.words import (
    Begun,
    Broken,
    Chosen,
    Failed,
    Here,
    Order,
    UserCode,
    Word,
    list_versions,
)
from potluck.experiment.prepare import prepare, resolve_run
from potluck.experiment.run_events import Ended, Started
from potluck.experiment.run_lock import is_locked, take_turns
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.settings import as_recorded

OFTEN = 1.0  # seconds between two words of how far a run is
LOOK = 0.2  # seconds between two looks for a snapshot

T = TypeVar("T")


def compute_far(order: Order, pool: Pool | None) -> Iterator[Word]:
    """Compute a run, or what is left of it: who does, how far it is, what has changed, what came of it."""
    yield _introduce()
    with _open_home() as home:
        changes = FolderChanges(home / "run")
        if order.there is not None:
            changes.place.mkdir()
            write_changes(changes.place, order.there)
            changes.mark_sent()
        child = Child(order.name, partial(_compute, order, pool, home), spawned=True)
        with _end_at_once(child):
            yield from _tell_of_run(order, child, changes)


def choose_far(orders: list[Order], pool: Pool | None) -> Iterator[Word]:
    """How runs are to be computed: measured one after another, so that none disturbs another."""
    yield _introduce()
    with _open_home() as home:
        child = Child("plans", partial(_choose, orders, pool, home), spawned=True)
        with _end_at_once(child), _tell_failure() as ended:
            ended.append(Chosen(child.wait()))
        yield ended[0]


def _introduce() -> Here:
    cards = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Here(platform.node(), ", ".join([hardware.describe_kind(), *cards]), list_versions())


def _tell_of_run(order: Order, child: Child[Done], changes: FolderChanges) -> Iterator[Word]:
    told = looked = 0.0
    sent: str | None = None  # the newest snapshot that was; "": what there is before one
    latest: Progress | None = None  # that wasn't told yet
    if order.there is not None:
        sent = _find_newest(changes.place)
    ended: list[Word] = []
    while not ended:
        with _tell_failure() as ended:
            if child.pipe.poll(LOOK):
                heard = child.next()
                if isinstance(heard, Started):
                    yield Begun(heard.round, heard.resumed)
                if isinstance(heard, Progress):
                    latest = heard
                elif not isinstance(heard, NEWS):
                    ended.append(heard)
                elif order.wants_events:
                    newest = _find_newest(changes.place)
                    if isinstance(heard, Started | Ended) and newest is not None:
                        yield changes.list_new()  # whoever hears of it finds in the folder what there is
                        sent = newest
                    yield heard
        now = time.monotonic()
        if latest is not None and (ended or now - told >= OFTEN):
            yield latest
            told, latest = now, None
        if not ended and now - looked >= LOOK:
            looked, newest = now, _find_newest(changes.place)
            if newest != sent:
                yield changes.list_new()
                sent = newest
    if changes.place.is_dir() and not isinstance(ended[0], Broken):
        yield changes.list_new()
    yield ended[0]


def _find_newest(place: Path) -> str | None:
    """The newest snapshot; "" if there is none yet, None if there is no run yet."""
    if not place.is_dir() or not folder.is_run(place):
        return None
    return (snapshot.list_all(place) or [""])[-1]


@contextmanager
def _tell_failure() -> Iterator[list[Word]]:
    """The last word, if a child that is heard within this fails or dies."""
    ended: list[Word] = []
    try:
        yield ended
    except DiedError as error:
        ended.append(Broken(error.how, f"its process was ended by {error.how}"))
    except Exception as error:  # whatever it is, it is raised where the run was asked for
        ended.append(Failed(Failure.of(error)))


@contextmanager
def _end_at_once(child: Child[T]) -> Iterator[None]:
    """Nothing is stopped gently: what counts has been sent."""
    try:
        yield
    finally:
        child.process.kill()
        child.process.join()
        child.pipe.close()


@contextmanager
def _open_home() -> Iterator[Path]:
    """A folder for a run, which this process holds; those that nobody holds any more are removed."""
    root = Path(tempfile.gettempdir()) / f"potluck-afar-{os.getuid()}"  # nobody writes into another's
    with take_turns(root):
        for name in safe_files.list_names(root, ""):
            if (root / name).is_dir() and is_locked(root / name) is False:
                shutil.rmtree(root / name, ignore_errors=True)
        home = Path(tempfile.mkdtemp(dir=root))
        held = os.open(home, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
        os.close(held)


# ---------------------------------------------------------------------------------------- what children do


def _compute(order: Order, pool: Pool | None, home: Path, tell: Tell) -> Done:
    hardware.share_cores(order.cpus)
    _read_user_code(order.user, home)
    experiment = _read_experiment(order)
    run = Missing(order.name, experiment, home / "run", state="nothing" if order.there is None else "begun")
    relay = [Relay(tell) if order.wants_events else RelayStart(tell)]
    federation = Federations(pool).find(resolve_run(experiment))
    return compute_run(run, order.choice, federation, order.cpus == 1, relay, tell)


def _choose(orders: list[Order], pool: Pool | None, home: Path, tell: Tell) -> list[PlanChoice]:
    federations = Federations(pool)
    hardware.share_cores(orders[0].cpus)
    _read_user_code(orders[0].user, home)
    found = []
    for order in orders:
        experiment = _read_experiment(order)
        setting = prepare(experiment, federation=federations.find(resolve_run(experiment)))
        found.append(execution_plan.choose_plan(setting, order.sharing))
    return found


def _read_experiment(order: Order) -> Experiment:
    path = Path(order.source)
    with as_recorded():  # names were looked up where it was asked for
        return Experiment(**toml.parse(order.text.encode(), path), _source=order.source)


def _read_user_code(user: UserCode, home: Path) -> None:
    """Register here what was registered where the run was asked for."""
    for room, files in (("code", [user.code] if user.code else []), ("study", user.beside)):
        (home / room).mkdir()
        for name, content in files:
            (home / room / name).write_bytes(content)
    if user.code is not None:
        code.load_code(home / "code" / user.code[0])
    if user.study:
        study_runner.read(home / "study" / user.study)
    if user.registered:
        try:
            registered.restore(pickle.loads(user.registered))
        except Exception as error:  # whatever it is made of isn't there
            raise ConfigError(
                f"what your program has registered can't be read there ({type(error).__name__}: {error}); "
                "install what it needs there, or put it into a file for --code"
            ) from error

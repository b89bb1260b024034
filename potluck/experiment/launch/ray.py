"""Runs on the machines of a Ray cluster: `--on ray:HOST:6379?gpus=0.5`.

Ray finds a machine that has what a run is given, hands it the order, carries its words and tells when it has
gone. It redoes nothing by itself, and holds nothing that can't be lost.
"""

import contextlib
import copyreg
import dataclasses
import logging
import os
import pickle
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl

from potluck.core.errors import ConfigError, nearest, require
from potluck.core.units import size as tell_size
from potluck.data import Pool
from potluck.execute.process import Failure
from potluck.experiment.launch import hardware
from potluck.experiment.launch.follower import Follower, Missing
from potluck.experiment.launch.registered import find_registered, list_own_modules
from potluck.experiment.launch.words import Failed, LostError, Word, read_user_code

PATIENCE = 5.0  # seconds in which a cluster must answer
TRIES = 10  # to join whoever answers, a second each
AHEAD = 4  # words that a run may be ahead of who hears it
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(
    (0, 0, 0, 4, 0, 0, 0, 0, 0)
)  # to which gRPC answers at once
OPTIONS = ("cpus", "gpus")
FORM = "write ray, ray:HOST:6379 or ray:HOST:6379?gpus=0.5&cpus=2"
CLIENT = (
    "the command itself would run on the head then, and its folders be there; run it on a machine of the "
    "cluster, or by `ray job submit -- potluck ...`"
)
MOST = 100 << 20  # bytes of a pool that was made in Python, or of what was registered there

T = TypeVar("T")


class Stream(Protocol):
    """Ray's own: the words of a task, as references."""

    def __next__(self) -> object: ...


@dataclass(frozen=True)
class RayCluster:
    """The machines of a cluster, and what each run is given of one. No run's bytes depend on it."""

    address: str | None = None  # HOST:PORT; None: RAY_ADDRESS, one that runs here, else one of our own
    cpus: int = 1
    gpus: float | None = None  # None: one where runs use it
    study: Path | None = None  # the file that defines the runs' study, if they are of one

    def for_study(self, file: Path) -> "RayCluster":
        return replace(self, study=file)

    def compute(self, missing: Sequence[Missing], jobs: int, pool: Pool | None, follower: Follower) -> None:
        from potluck.experiment.launch.asker import Asker, Terms  # here: what they import imports this

        user, gpus = read_user_code(self.study), self.gpus
        user = user._replace(registered=_pack_registered())
        if gpus is None:
            gpus = float(any(run.experiment.run.device != "cpu" for run in missing))
        _check_pool(pool)
        with _connect(self.address) as own:
            machines = _Machines(self.cpus, gpus, pool, own)
            machines.require_room()
            Asker(machines, Terms(self.cpus, gpus, user, jobs), follower).compute(missing)


def read_cluster(text: str) -> RayCluster:
    """What `--on` says."""
    head, _, query = text.partition("?")
    name, colon, address = head.partition(":")
    require(name == "ray", "on", text, f"should begin with ray; {FORM}; batch systems: --part 1/8")
    require(not address.startswith("//"), "on", text, CLIENT)
    require(not colon or _is_address(address), "on", text, f"no HOST:PORT after ray:; {FORM}")
    given = dict(parse_qsl(query, keep_blank_values=True))
    for key in given:
        require(key in OPTIONS, f"on = {text!r}: {key}", given[key], nearest(key, OPTIONS))
    cpus, gpus = given.get("cpus", "1"), given.get("gpus")
    whole = re.fullmatch(r"[1-9][0-9]{0,5}", cpus) is not None
    require(whole, f"on = {text!r}: cpus", cpus, "write the cores of a run, 1 or more, such as cpus=2")
    fix = "a run takes one GPU, or a share of one; write 1, or a part such as gpus=0.25"
    share = gpus is None or (re.fullmatch(r"1|0?\.\d+", gpus) is not None and float(gpus) > 0)
    require(share, f"on = {text!r}: gpus", gpus, fix)
    return RayCluster(address or None, int(cpus), None if gpus is None else float(gpus))


def _is_address(text: str) -> bool:
    return re.fullmatch(r"[^:/?@\s]+:\d{1,5}", text) is not None


def _check_pool(pool: Pool | None) -> None:
    """Refuse what is too large to be sent to every machine."""
    if pool is not None and (size := pool.x.nbytes) > MOST:
        raise ConfigError(
            f"pool {pool.name!r}: {tell_size(size)} don't travel, at most {tell_size(MOST)} do; save it "
            "where all machines read it, and name that in data.path"
        )


def _pack_registered() -> bytes:
    """What the main program has registered, with the code of its own modules; nothing if it has not."""
    modules = list_own_modules()
    found = find_registered(modules)
    if found is None:
        return b""
    names = ", ".join(f"{noun} {name!r}" for noun, named in found.named.items() for name in named)
    copyreg.pickle(type(dataclasses.MISSING), lambda _: "MISSING")  # else fields would have another one
    with _by_value(modules):
        try:
            packed: bytes = _import_ray().cloudpickle.dumps(found)
        except Exception as error:  # whatever it is made of
            raise ConfigError(
                f"{names}: can't travel ({type(error).__name__}: {error}); put what registers it into a file "
                "for --code, such as potluck.experiment.code.load_code(path)"
            ) from error
    if len(packed) > MOST:
        raise ConfigError(
            f"{names}: {tell_size(len(packed))} don't travel, at most {tell_size(MOST)} do; let it read what "
            "is large from a file that all machines have"
        )
    return packed


@contextmanager
def _by_value(modules: Sequence[ModuleType]) -> Iterator[None]:
    """Within, what these define travels itself; else its name would, which says nothing elsewhere."""
    cloudpickle = _import_ray().cloudpickle
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _import_ray() -> Any:
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", str(TRIES))  # it is read by the import
    try:
        import ray
    except ImportError:
        fix = 'pip install "potluck[ray]"'
        raise ConfigError(f"on = 'ray': Ray isn't installed here; {fix}") from None
    return ray


@contextmanager
def _connect(address: str | None) -> Iterator[bool]:
    """Within, this process is one of a cluster; whether that was started for it, and ends with it."""
    ray = _import_ray()
    if ray.is_initialized():  # by whoever called us
        yield False
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        own = _join(address or os.environ.get("RAY_ADDRESS") or "auto")
        _silence()
        yield own
    finally:
        ray.shutdown()
        if threading.current_thread() is threading.main_thread():  # no other may, and Ray sets none there
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _join(address: str) -> bool:
    """Whether a cluster of our own was started, since there is none."""
    import ray

    at = f"on = 'ray:{address}'"
    require(not address.startswith("ray://"), "RAY_ADDRESS", address, CLIENT)
    if _is_address(address):
        host, _, port = address.rpartition(":")
        if host in ("localhost", "127.0.0.1"):  # Ray looks for these there
            host = ray.util.get_node_ip_address()
        try:
            with (
                socket.create_connection((host, int(port)), PATIENCE) as link,
                contextlib.suppress(ConnectionError),  # such as where all is encrypted
            ):
                link.sendall(HELLO)
                link.recv(1)
        except (
            OSError,
            OverflowError,
        ) as error:  # Ray itself would try for minutes, also if somebody is silent
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"{at}: nobody answers there ({why}); `ray start --head` starts one") from None
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # of streams that nobody hears any more
    terms = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address != "local":
            with contextlib.suppress(ConnectionError) if address == "auto" else contextlib.nullcontext():
                ray.init(address=address, **terms)
                return False
        # Of this command alone: nobody else is to reach it, and nothing is told to anybody.
        os.environ.setdefault("RAY_worker_niceness", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(
            address="local",
            num_cpus=hardware.count_cores(),
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            **terms,
        )
    except (Exception, SystemExit) as error:  # whatever Ray raises, it can't be joined
        why = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(
            f"{at}: can't be joined ({why}); see `ray status` on the machine of its head"
        ) from None
    return True


def _silence() -> None:
    """Ray prints what its machines' own logs say of deaths; ours is one line, which names the run."""
    from ray._private import worker

    if hasattr(worker, "_worker_logs_enabled"):
        worker._worker_logs_enabled = False


class _Machines:
    """The cluster, as who asks for runs sees it."""

    def __init__(self, cpus: int, gpus: float, pool: Pool | None, own: bool) -> None:
        import ray

        self.cpus, self.gpus, self.own = cpus, gpus, own
        self.pool = None if pool is None else ray.put(pool)  # once for all runs

    def begin(self, name: str, call: Callable[[T, Pool | None], Iterator[Word]], terms: T) -> "Stream":
        import ray

        remote = ray.remote(call).options(
            name=name,
            num_cpus=self.cpus,
            num_gpus=self.gpus,
            max_retries=0,
            num_returns="streaming",
            scheduling_strategy="SPREAD",
            _generator_backpressure_num_objects=AHEAD,
        )
        stream: Stream = remote.remote(terms, self.pool)
        return stream

    def wait(self, streams: Sequence["Stream"], seconds: float) -> Sequence["Stream"]:
        import ray

        ready: list[Stream] = ray.wait(streams, num_returns=1, timeout=seconds)[0]
        return ready

    def hear(self, stream: "Stream") -> Word:
        import ray
        from ray.exceptions import OutOfMemoryError, RayError, RayTaskError, WorkerCrashedError

        try:
            word: Word = ray.get(next(stream))
            return word
        except RayTaskError as error:
            return Failed(_tell_error(error.cause))
        except RayError as error:
            known = {
                OutOfMemoryError: "its machine had no memory left",
                WorkerCrashedError: "its worker died",
            }
            text = next((known[kind] for kind in known if isinstance(error, kind)), "its machine has gone")
            raise LostError(text, type(error).__name__) from None
        except StopIteration:
            raise LostError("its stream broke off", "StopIteration") from None

    def drop(self, stream: "Stream") -> None:
        import ray

        ray.cancel(stream, force=True)

    def tell_lack(self, runs: int) -> str:
        wanted = [_count(self.gpus, "GPU")] if self.gpus else []
        wanted += [_count(self.cpus, "CPU")] if not wanted or self.cpus > 1 else []
        who = "1 run waits" if runs == 1 else f"{runs} runs wait"
        each = " each" if runs > 1 else ""
        return f"{who} for {' and '.join(wanted)}{each}; {self._tell_room()}"

    def require_room(self) -> None:
        """Refuse to wait for what never comes: nobody makes a cluster larger that was started here."""
        import ray

        if not self.own:
            return
        there = ray.cluster_resources()
        if self.cpus > (most := there.get("CPU", 0)):
            raise ConfigError(f"on: cpus={self.cpus}: {self._tell_room()}; write cpus={most:g} or less")
        if self.gpus > there.get("GPU", 0):
            fix = "leave gpus out, with run.device=cpu"
            raise ConfigError(f"on: gpus={self.gpus:g}: {self._tell_room()}; {fix}")

    def _tell_room(self) -> str:
        import ray

        there = ray.cluster_resources()
        found = " and ".join(_count(there.get(kind, 0), kind) for kind in ("CPU", "GPU"))
        return f"the cluster has {found}"


def _tell_error(error: Exception) -> Failure:
    """What a task raised before its run could: what it is made of isn't there, or the machine is at fault."""
    found = f"{type(error).__name__}: {error}"
    unlike = isinstance(error, ImportError | AttributeError | pickle.PickleError)
    fix = "; is the same Potluck installed on all machines?" if unlike else ""
    return Failure("PotluckError", f"can't be computed there ({found}){fix}", "")


def _count(number: float, what: str) -> str:
    return f"{number:g} {what}{'s' * (number > 1)}" if number else f"no {what}"

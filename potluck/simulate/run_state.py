"""All of a simulation that changes while it runs: one value, which a snapshot stores."""

from collections.abc import Hashable
from pathlib import Path

from potluck.core import safe_files
from potluck.core.codec import value
from potluck.core.messages import Node
from potluck.core.trees import Tree
from potluck.engine import record_sums, snapshot
from potluck.engine.accounts import Accounts
from potluck.engine.memories import MemoryState, find_log_fault, read_log
from potluck.engine.point import PointState
from potluck.engine.queues import QueueState
from potluck.execute.plan import ExecutionPlan
from potluck.fleet import Topology
from potluck.simulate.clock import Clock
from potluck.simulate.devices import DeviceState
from potluck.simulate.links import LinkState

RECORDS, SUMS, MEMORIES = "records.jsonl", "records.sums", "keep.log"  # in a run's folder


@value(frozen=False, eq=False)
class RunState:
    """Where a run stands. What has an owner is a value of its own, which the owner changes in place."""

    identity: str  # of the experiment
    plan: ExecutionPlan
    clock: Clock
    points: dict[Node, PointState]
    devices: DeviceState
    links: LinkState
    accounts: Accounts
    memories: MemoryState
    records: int = 0  # length of the log
    evaluations: int = 0
    evaluated: tuple[int, float] | None = None  # round and time of the last evaluation
    accuracy: float | None = None
    idle_looks: int = 0  # for somebody online, since anything else was under way
    begun: bool = False
    stopping: bool = False
    finished: bool = False

    @classmethod
    def begin(cls, identity: str, plan: ExecutionPlan, topology: Topology) -> "RunState":
        """Of a run that hasn't begun."""
        senders = topology.aggregators
        return cls(
            identity,
            plan,
            Clock(),
            {node: PointState() for node in senders},
            DeviceState(QueueState.begin(senders)),
            LinkState.begin(senders),
            Accounts.begin(topology.devices),
            MemoryState(),
        )


def read_memories(folder: Path) -> dict[tuple[Node, Hashable], Tree]:
    """What the devices of a run, in its folder, remembered at its last snapshot."""
    _, state, _ = read_newest(folder)
    return read_log(folder / MEMORIES, state.memories)


def remove_logs(folder: Path) -> None:
    """Of a run that was killed before its first snapshot, and begins again."""
    for log in (RECORDS, SUMS, MEMORIES):
        safe_files.remove_file(folder, log)


def read_newest(folder: Path, device: str = "cpu") -> tuple[int, RunState, list[str]]:
    """The newest good snapshot of a run whose logs are good as well: see `snapshot.read_newest`."""

    def find_fault(state: RunState) -> str | None:
        wrong = record_sums.find_fault(folder / RECORDS, state.records)
        return find_log_fault(folder / MEMORIES, state.memories) if wrong is None else wrong

    return snapshot.read_newest(folder, RunState, device, find_fault)

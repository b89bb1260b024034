"""Potluck as a plain Flower app: the server is a ServerApp, a device a ClientApp. Only this file knows flwr.

A node says who it is by its node config: `potluck-device="FOLDER"`, a device's folder. A SuperNode starts a
process for each message, and a ServerApp that has ended can't be resumed by Flower. Neither matters: a device
lives in its folder, a run in its own, so `flwr run` again goes on, and what was done is answered from disk.

Each side imports its own half when it is called: a device needs nothing of the server's.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from potluck.core.errors import ConfigError, PotluckError
from potluck.core.messages import Node
from potluck.core.plain_text import show_controls
from potluck.deploy import parcels
from potluck.deploy.port import Incoming, Outgoing

DEVICE = "potluck-device"  # of a node's config: the folder of its device
LOOK_EVERY = 3.0  # seconds between two questions to a SuperLink: who is there
PULL_EVERY = 1.0  # and: are there replies; SuperNodes themselves ask every three seconds
LASTS = 600.0  # seconds that a message may take there and back, at least


# ------------------------------------------------------------------------------------------- the device


def make_client() -> ClientApp:
    """A device, as an app."""
    app = ClientApp()
    app.query()(answer)
    return app


def answer(message: Message, context: Context) -> Message:
    """What the device of this node says to a parcel; its name with it."""
    name = ""
    try:
        from potluck.deploy.work.device_folder import make_device

        folder = context.node_config.get(DEVICE)
        if not isinstance(folder, str):
            fix = f"start it with --node-config '{DEVICE}=\"FOLDER\"', a folder of `potluck deploy join`"
            raise ConfigError(f"node config {DEVICE} = {folder!r}: {fix}")
        device, told = make_device(Path(folder))
        name = told.name
        report = device.answer(_read(message, "head") + _read(message, "body"))
    except PotluckError as error:
        report = parcels.pack(parcels.Failed("", "refused", str(error)))
    return Message(_wrap(report=report, name=name.encode()), reply_to=message)


# ------------------------------------------------------------------------------------------- the server


def make_server(folder: Path) -> ServerApp:
    """The conductor of an app's folder, as an app."""

    def main(grid: Grid, context: Context) -> None:
        conduct(grid, context, folder)

    app = ServerApp()
    app.main()(main)
    return app


def conduct(grid: Grid, context: Context, folder: Path) -> None:
    """Conduct the run of an app's folder with the nodes of a SuperLink, or go on with it."""
    from potluck.deploy.conduct.deployment import Deployment
    from potluck.deploy.conduct.round_lines import make_watch
    from potluck.deploy.conduct.whole_run import conduct as conduct_run
    from potluck.deploy.flower_folder import EXPERIMENT, RUN
    from potluck.deploy.members import roster
    from potluck.experiment.schema.experiment import Experiment

    def open_grid(deployment: Deployment) -> GridPort:
        return GridPort(grid, deployment.roster.find_seat, max(LASTS, deployment.patience), _say)

    experiment, out = Experiment.from_file(folder / EXPERIMENT), Path(str(context.run_config[RUN]))
    found = roster.read(folder)
    conduct_run(folder, found, experiment, out, open_grid, progress=make_watch(_say), say=_say)


class _Sent(NamedTuple):
    """A message that is under way."""

    peer: int  # Flower's number of the node
    key: str  # none: who are you
    at: float


class GridPort:
    """A SuperLink's nodes as a port. Flower can't call off: what is no longer wanted isn't waited for.

    The first message asks a node who it is and what it holds, so that a hello costs no second one. A name is
    its who said it first, for as long as that node is there.
    """

    def __init__(
        self,
        grid: Grid,
        find: Callable[[str], Node | None],  # the number of a device, by its name
        lasts: float = LASTS,
        say: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.grid, self.find, self.lasts, self.say, self.clock = grid, find, lasts, say, clock
        self.peers: dict[Node, int] = {}  # who has a number
        self.present: dict[int, tuple[str, bytes]] = {}  # what nodes have said of themselves
        self.sent: dict[str, _Sent] = {}  # by a message's id
        self.heard: list[Incoming] = []
        self.refused: dict[int, float] = {}  # whom nobody knows, and when they said so
        self.looked = self.pulled = float("-inf")

    def nodes(self) -> Mapping[Node, str]:
        if self.clock() - self.looked >= LOOK_EVERY:
            self.looked = self.clock()
            self._look()
        return {node: str(peer) for node, peer in self.peers.items()}

    def post_all(self, parcels_out: Sequence[Outgoing]) -> None:
        for parcel in parcels_out:
            peer = self.peers.get(parcel.to)
            if peer is None:
                continue  # it is posted again when it is there
            if parcel.key.startswith("hello/"):
                self.heard.append(Incoming(parcel.to, parcel.key, self.present[peer][1]))
            elif parcel.head == parcels.pack(parcels.CallOff(parcel.key)):
                self._forget(peer, parcel.key)
            elif not self._is_under_way(peer, parcel.key):
                self._push(peer, parcel.key, parcel.head, parcel.body)

    def poll(self, wait: float) -> list[Incoming]:
        if not self.heard:
            due = self.pulled + PULL_EVERY - self.clock()
            if not self.sent or due > 0:
                time.sleep(min(wait, max(0.0, due)) if self.sent else wait)
            else:
                self.pulled = self.clock()
                for message in self.grid.pull_messages(list(self.sent)):
                    self._take(message)
        heard, self.heard = self.heard, []
        return heard

    def close(self) -> None:
        """A grid is Flower's own to close."""

    def _look(self) -> None:
        there, now = set(self.grid.get_node_ids()), self.clock()
        self.peers = {node: peer for node, peer in self.peers.items() if peer in there}
        self.present = {peer: said for peer, said in self.present.items() if peer in there}
        self.sent = {
            name: sent
            for name, sent in self.sent.items()
            if sent.peer in there and now - sent.at < self.lasts
        }
        asked = {sent.peer for sent in self.sent.values() if not sent.key}
        known = set(self.peers.values())
        for peer in sorted(there - known - asked):
            if peer in self.present:
                self._seat(peer)  # who had its name may have left
            elif now - self.refused.get(peer, float("-inf")) >= self.lasts:
                hello = parcels.Hello(parcels.PROTOCOL, "", -1)
                self._push(peer, "", parcels.pack(hello), b"")

    def _is_under_way(self, peer: int, key: str) -> bool:
        """Whether a SuperLink has it still: it would come twice, at a process each."""
        now = self.clock()
        return any(s.peer == peer and s.key == key and now - s.at < self.lasts for s in self.sent.values())

    def _forget(self, peer: int, key: str) -> None:
        self.sent = {name: s for name, s in self.sent.items() if (s.peer, s.key) != (peer, key)}

    def _push(self, peer: int, key: str, head: bytes, body: bytes) -> None:
        """One at a time: a SuperLink limits what it takes at once. It has a body only once, however many."""
        content = _wrap(head=head, body=body)
        message = Message(content, dst_node_id=peer, message_type="query", ttl=self.lasts)
        names = [name for name in self.grid.push_messages([message]) if name]
        if not names:
            self.say(f"node {peer}: the SuperLink didn't take a message of {len(head) + len(body)} bytes")
        for name in names:
            self.sent[name] = _Sent(peer, key, self.clock())

    def _take(self, message: Message) -> None:
        sent = self.sent.pop(message.metadata.reply_to_message_id, None)
        if sent is None:
            return
        if not message.has_content():  # it is posted again after patience
            self.say(f"node {sent.peer}: {message.error.reason or message.error.code}")
            if not sent.key:
                self.refused[sent.peer] = self.clock()
            return
        report, name = _read(message, "report"), _read(message, "name").decode(errors="replace")
        if not sent.key:
            self.present[sent.peer] = (name, report)
            self._seat(sent.peer, first=True)
            return
        node = next((node for node, peer in self.peers.items() if peer == sent.peer), None)
        if node is not None and report:
            self.heard.append(Incoming(node, sent.key, report, self.clock() - sent.at))

    def _seat(self, peer: int, first: bool = False) -> None:
        """Give a node the number of its name, if that is free."""
        name, report = self.present[peer]
        node = self.find(name)
        if node is not None and node not in self.peers:
            self.peers[node] = peer
        elif node is None:
            del self.present[peer]
            self.refused[peer] = self.clock()
            self.say(f"node {peer}: {_find_reason(name, report)}")
        elif first:
            self.say(f"node {peer}: says that it is {name!r:.70}, which another node is")


def _find_reason(name: str, report: bytes) -> str:
    """Why a node isn't a device of this federation."""
    try:
        said, _ = parcels.unpack_report(report)
    except PotluckError as error:
        return str(error)
    if isinstance(said, parcels.Failed):
        return f"{said.why!s:.300}"
    return f"says that it is {name!r:.70}, whom federation.toml doesn't have"


# -------------------------------------------------------------------------------------------- both sides


def _wrap(**records: bytes) -> RecordDict:
    """Bytes by name; a SuperLink keeps each of them once, whoever it is sent to."""
    return RecordDict({name: ConfigRecord({"bytes": data}) for name, data in records.items()})


def _read(message: Message, name: str) -> bytes:
    """Bytes of a message; none where somebody has sent something else."""
    found = message.content.config_records.get(name, {}).get("bytes", b"")
    return found if isinstance(found, bytes) else b""


def _say(line: str) -> None:
    sys.stdout.write(show_controls(line) + "\n")  # into Flower's own log
    sys.stdout.flush()

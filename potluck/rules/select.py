"""Who takes part. A selector's state is a value that its algorithm holds, so a snapshot can't forget it."""

from typing import Any, Protocol

from typing_extensions import TypeVar

from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.messages import Node
from potluck.core.parts import part, role
from potluck.core.rule import Got
from potluck.jobs.train import Train

Picks = TypeVar("Picks", default=Any)  # what a selector remembers


@role("select")
class Select(Protocol[Picks]):
    """Chooses the devices of a round and learns from what came of it."""

    def start(self) -> Picks: ...
    def pick(self, picks: Picks, count: int, ctx: Context) -> tuple[list[Node], Picks]: ...
    def jobs(self, local: Train, nodes: list[Node], picks: Picks) -> list[Train]: ...  # one a node
    def learn(self, picks: Picks, got: Got, ctx: Context) -> Picks: ...


@part("select")
@value
class Uniform:
    """Anyone who is online and idle, with equal chances."""

    def start(self) -> None:
        return None

    def pick(self, picks: None, count: int, ctx: Context) -> tuple[list[Node], None]:
        return ctx.sample(count), None

    def jobs(self, local: Train, nodes: list[Node], picks: None) -> list[Train]:
        return [local] * len(nodes)

    def learn(self, picks: None, got: Got, ctx: Context) -> None:
        return None

"""The algorithm and its parameters; the package says what it is and where it departs from the paper."""

from dataclasses import replace
from typing import Annotated, Any, Self

from potluck.algorithms.fedavg import FedAvg
from potluck.algorithms.moon.device import Moon as Contrast  # the only moon of this module is the algorithm
from potluck.core.codec import value
from potluck.core.context import Context
from potluck.core.messages import Node, Task
from potluck.jobs import Kept, Train, used
from potluck.rules import Average, Select, ServerOptim, Uniform


@value
class Keeping:
    """A rule whose devices keep the models that they train; these are served beside its own."""

    inner: Any  # a rule with one model, such as FedAvg, whose objective keeps `personal`

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)  # it trains as the inner rule does

    def resized(self, clients: int, rate: float) -> Self:
        return replace(self, inner=self.inner.resized(clients, rate))

    def serve(self, m: Any, node: Node, ctx: Context) -> dict[str, Task]:
        plain: dict[str, Task] = self.inner.serve(m, node, ctx)
        if node == ctx.me:
            return plain
        job = used(self.inner.local.model, Kept())
        return {**plain, "personal": replace(plain["global"], job=job)}


def moon(
    local: Train = Train(),
    clients: Annotated[int, "devices a round"] = 10,
    mu: Annotated[float, "how much the contrast counts; 0: not at all"] = 1.0,
    tau: Annotated[float, "temperature: the lower, the more the nearest representations count"] = 0.5,
    select: Annotated[Select, "who takes part"] = Uniform(),
    server: Annotated[ServerOptim, "what becomes of a round's updates"] = Average(),
    overcommit: Annotated[float, "ask so many times the clients, go on with the first"] = 1.0,
    deadline: Annotated[float | None, "seconds"] = None,
) -> Keeping:
    """FedAvg whose devices are drawn to the global model's representations, away from their own last ones."""
    job = replace(local, objective=Contrast(mu, tau))
    return Keeping(FedAvg(clients, job, select, server, overcommit, deadline))

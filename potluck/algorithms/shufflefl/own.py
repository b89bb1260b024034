"""What differs from user to user: the gateway that plans, how far it merges classes, how far away it is."""

from collections.abc import Mapping

from torch import Tensor

from potluck.authoring import Context, Node, Tree, nbytes, value
from potluck.fleet.cost import transfer_seconds


@value(name="shufflefl.Own")
class Own:
    """Gateways and gammas; of several, the first user has the first, and after the last they begin again."""

    gateways: tuple[str, ...]
    gammas: tuple[float, ...]

    @property
    def shares(self) -> tuple[float, ...]:
        """Gammas by which classes are merged, each once."""
        return tuple(gamma for gamma in dict.fromkeys(self.gammas) if gamma < 1)

    def choose(self, user: Node, groups: Mapping[float, Tensor], ctx: Context) -> dict[str, Tree]:
        """What a user is sent of it: a gateway only where they differ."""
        several = max(len(self.gateways), len(self.gammas)) > 1
        place = user - min(int(n) for n in ctx.children if n > ctx.me) if several else 0
        merged = groups.get(self.gammas[place % len(self.gammas)])
        sent: dict[str, Tree] = {} if merged is None else {"groups": merged}
        if len(self.gateways) > 1:
            sent["gateway"] = self.gateways[place % len(self.gateways)]
        return sent


def find_ways(
    plain: Mapping[Node, dict[str, Tree]], sent: Mapping[Node, Tree], ctx: Context
) -> dict[Node, float]:
    """Seconds that the model takes to each user, with what else it is sent, and its answer takes back."""
    nodes = list(sent)
    claims, models = ctx.profiles(nodes), [nbytes(plain[n]) for n in nodes]
    pace = zip(nodes, models, claims.down, claims.up, claims.latency, strict=True)
    return {
        n: transfer_seconds(model + nbytes(sent[n]), float(down), float(latency))
        + transfer_seconds(model + 2 * 8, float(up), float(latency))  # beside the change two numbers at most
        for n, model, down, up, latency in pace
    }

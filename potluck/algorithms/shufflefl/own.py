"""What differs from user to user: the gateway that plans, how far it merges classes, how far away it is."""

from collections.abc import Mapping

from torch import Tensor

from potluck.authoring import Context, Node, Params, Tree, nbytes, value
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


def find_ways(sent: Mapping[Node, Tree], params: Params, ctx: Context) -> dict[Node, float]:
    """Seconds that the model takes to each user and its answer takes back."""
    nodes, model = list(sent), nbytes(params)
    claims, answer = ctx.profiles(nodes), model + 2 * 8  # beside the change two numbers at most
    return {
        n: transfer_seconds(model + nbytes(sent[n]), float(down), float(latency))
        + transfer_seconds(answer, float(up), float(latency))
        for n, down, up, latency in zip(nodes, claims.down, claims.up, claims.latency, strict=True)
    }

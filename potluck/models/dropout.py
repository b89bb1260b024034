"""Dropout whose mask is a function of a key: the same wherever and whenever a task is computed."""

from dataclasses import dataclass

from torch import Tensor, nn

from potluck.core.keys import fold_in, uniform

# AlphaDropout and the like are left alone: the trial run finds that they draw by themselves.
_ORDINARY = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


@dataclass
class Draws:
    """The key of one forward pass and how often it was drawn from; shared by all dropouts of a network."""

    key: Tensor | None = None
    count: int = 0


class KeyedDropout(nn.Module):
    """Stands in for an `nn.Dropout`; without a key (evaluation) it does nothing."""

    def __init__(self, p: float, channels: bool, draws: Draws) -> None:
        super().__init__()
        self.p = p
        self.channels = channels
        self.draws = draws

    def forward(self, x: Tensor) -> Tensor:
        """For use inside a module, which may call one dropout several times: each call has its own mask."""
        if self.draws.key is None:
            return x
        self.draws.count += 1
        return self.drop(x, fold_in(self.draws.key, self.draws.count))

    def drop(self, x: Tensor, key: Tensor) -> Tensor:
        """Zero single values, or whole channels, with probability p."""
        # Flat positions, and float32 always: a row's mask depends neither on how many rows follow it
        # (padding) nor on the precision of the run.
        shape = (*x.shape[:2], *(1 for _ in x.shape[2:])) if self.channels else tuple(x.shape)
        kept = (uniform(key, shape) >= self.p).to(x.dtype)
        return x * (kept * (1 / (1 - self.p) if self.p < 1 else 0.0))


def key_dropouts(net: nn.Module) -> Draws:
    """Replace every dropout inside a network, which is changed; the key goes into what is returned."""
    draws = Draws()
    for parent in list(net.modules()):
        for name, child in parent._modules.items():  # named_children would skip a second use of one dropout
            if isinstance(child, _ORDINARY):
                setattr(parent, name, KeyedDropout(child.p, not isinstance(child, nn.Dropout), draws))
    return draws

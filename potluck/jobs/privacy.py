"""Local differential privacy: a device clips its update and adds noise before anything leaves it.

Trust: nobody but the device itself is trusted, neither the server nor other clients, and all of them may see
every update. What is protected is one client's whole update, hence all its rows at once: whatever they are,
the clipped update lies within `clip` of 0, so two clients' updates lie within 2 x clip of each other. Privacy
is therefore counted for *replacing* a client's data by any other, with sensitivity 2 x clip and noise of
sigma x clip: a noise multiplier of sigma / 2. (Against an update of nothing but noise, which many papers
count, it would be sigma.) Sampling of clients amplifies nothing, since the server sees who sends. Every
update that a device begins to send counts, also those that come too late.

There is no usual sigma. Epsilon of ten updates at delta 1e-6, by `potluck.experiment.accountant` (that is
dp-accounting's curve of the Gaussian mechanism, for replacement): 105 with sigma 0.6, 49 with 1, 6.4 with 5,
2.9 with 10, 1.4 with 20. Papers that pair epsilon 8 with 0.6 count one update, against nothing but noise.

Not protected: who takes part, when, and how many rows a client has (its weight). Metrics of training don't
leave a device that is private. Jobs beside training (a count of labels, say) are not covered: an algorithm
that uses them tells more than epsilon says.

The noise is a hashed counter's, so that a run can be repeated: right for a simulation, predictable for
whoever knows the seed. A deployment needs a secret, cryptographic source, and care with floating point.
"""

import torch
from torch import Tensor

from potluck.core import keys
from potluck.core.codec import value
from potluck.core.errors import require
from potluck.core.trees import Params


@value
class Private:
    """The Gaussian mechanism on a device's whole update."""

    clip: float  # the longest that an update may be, by its L2 norm
    sigma: float  # deviation of the noise on every number, in clips
    delta: float = 1e-6  # chance for which epsilon need not hold

    def __post_init__(self) -> None:
        inf, key = float("inf"), "train.privacy"
        require(0 < self.clip < inf, f"{key}.clip", self.clip, "must be above 0, such as 1.0")
        require(0 < self.sigma < inf, f"{key}.sigma", self.sigma, "must be above 0; without noise, leave out")
        require(0 < self.delta < 1, f"{key}.delta", self.delta, "must be between 0 and 1, such as 1e-6")

    def privatise(self, delta: Params, key: Tensor) -> Params:
        """The update as it may be seen: a pure function of it and a key, vmappable."""
        squares = [d.double().square().sum() for d in delta.values()]
        norm = torch.stack(squares).sum().sqrt()
        shrink = self.clip / norm.clamp_min(self.clip)  # NaN stays NaN: a bad update is found to be one

        def add_noise(place: int, d: Tensor) -> Tensor:
            # In double precision: a float32's 24 bits would cut the tails off at 5.8 deviations.
            noise = keys.normal(keys.fold_in(key, place), tuple(d.shape), torch.float64)
            return (d.double() * shrink + self.sigma * self.clip * noise).to(d.dtype)

        return {name: add_noise(place, d) for place, (name, d) in enumerate(delta.items())}

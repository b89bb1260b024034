"""How big the tiers' models are: alpha times the one above, and smaller where memory asks for it.

The print has M_{i-1} = alpha M_i, which would make poorer tiers' models bigger; its next line, and here, have
M_i = alpha M_{i-1}. Alpha acts on the width, as in the authors' notebook, or on the depth: whoever reads the
scales decides.
"""

from collections.abc import Callable, Sequence

import numpy as np

from potluck.algorithms.fedrac.clustering.resources import Floats
from potluck.core.errors import ConfigError, require


def scales(
    alpha: float, memory: Sequence[float] | Floats, size: Callable[[float], float], smallest: float = 1e-3
) -> Floats:
    """Scales [tiers], of width or depth: alpha^f, smaller by alphas until training fits the tier's memory.

    `memory` [tiers] is the least of each tier's members, in bytes; `size` says what training a model of some
    scale takes, in real bytes (half the width has about a quarter of the parameters). No model is bigger than
    that of a richer tier.
    """
    require(
        0 < alpha < 1, "alpha", alpha, "a tier's model is a share of the next richer one's: between 0 and 1"
    )
    found: list[float] = []
    for tier, limit in enumerate(memory):
        scale = min([alpha**tier, *found[-1:]])
        while size(scale) > limit:
            if scale * alpha < smallest:
                raise ConfigError(
                    f"memory of tier {tier} = {limit:,.0f} bytes: its model needs {size(scale):,.0f} even at "
                    f"scale {scale:.3g}; choose a smaller model or batch, or leave its smallest devices out"
                )
            scale *= alpha
        found.append(scale)
    return np.array(found)


def least_scale(alpha: float, smallest: float = 1e-3) -> float:
    """The last scale that `scales` tries."""
    scale = 1.0
    while scale * alpha >= smallest:
        scale *= alpha
    return scale

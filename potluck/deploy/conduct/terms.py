"""What a deployed run was begun with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from potluck.core.codec import Limits
from potluck.core.job import Nets
from potluck.core.rule import Algorithm
from potluck.deploy import parcels
from potluck.engine.schedule import EvaluateAt, StopAt


@dataclass(frozen=True, eq=False)
class Rows:
    """What is known of everybody's rows without seeing one."""

    shape: tuple[int, ...]
    classes: int
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class Terms:
    """What a run was begun with; nothing of it changes."""

    algorithm: Algorithm
    models: Nets
    rows: Rows
    devices: int  # numbers that the federation has, whether anybody has them yet or not
    seed: int
    stop: StopAt
    evaluate: EvaluateAt = EvaluateAt()
    limits: Limits = parcels.BODY
    user: NDArray[np.int32] | None = None  # whose each device is; -1: nobody's
    server: Mapping[str, int] = field(default_factory=dict)  # the server's own rows, by part

"""What a user's hub remembers from one event to the next."""

from dataclasses import field

from torch import Tensor

from potluck.algorithms.shufflefl.device import DeviceGauge
from potluck.algorithms.shufflefl.past import Past
from potluck.algorithms.shufflefl.split import Split
from potluck.authoring import Move, Node, Tree, value

DONE = "done"  # with the participation


@value(eq=False)
class HubState:
    """What a user's hub remembers; nothing that lasts may live elsewhere."""

    doing: str = DONE  # what is next
    found: dict[Node, DeviceGauge] = field(default_factory=dict)  # devices, as gauged for what is at hand
    beta: float = 1.0  # expected time now, over that of the last time
    alpha: float | None = None
    level: float = 0.0  # the alpha at which this user's two terms are equal; 0: there is none
    groups: Tensor | None = None  # [classes]
    limit: float | None = None  # seconds for moves and training; None: as long as it takes
    until: float | None = None  # time on the clock when it answers with what is done; None: when all is
    gateway: str | None = None  # of its own; None: as all have
    spared: float = 0.0  # seconds that it would have taken beyond the limit
    split: Split = Split()
    moves: tuple[Move, ...] = ()
    keen: tuple[Node, ...] = ()  # who will have rows to train on
    past: Past | None = None
    model_bytes: int = 0  # of what its devices train
    told: Tree = None  # what devices answered, as one; None: nothing yet
    weight: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    round: int = 0

"""Whether what a device trains with fits into memory: refused before anything of it is taken."""

from potluck.core.job import Net
from potluck.core.room import require_room
from potluck.experiment.schema.settings import Training
from potluck.jobs import SGD
from potluck.models.footprint import training_bytes

ENTRY = 36  # bytes of a row that is drawn: which it is, at which place, with which weight
LARGE = 1000  # rows of a batch, up to which no model is asked what they take


def check_steps(training: Training) -> None:
    """Refuse more batches than the list of their rows has room for."""
    key = "epochs" if training.steps is None else "steps"
    count = training.epochs if training.steps is None else training.steps
    drawn = training.batch * (count or 1)  # an epoch has a batch at least
    if training.batch > (count or 1):
        key, count = "batch", training.batch
    require_room(
        ENTRY * drawn, f"train.{key}", count, f"lower it ({drawn:,} rows would be drawn by a device)"
    )


def check_batch(training: Training, net: Net) -> None:
    """Refuse a batch that a step has no room for."""
    if training.batch > LARGE:
        taken = training_bytes(net, SGD(), training.batch)
        require_room(taken, "train.batch", training.batch, "lower it: a step keeps what its rows become")

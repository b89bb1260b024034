"""Models as pure functions of their parameters; bring your own with `register`."""

# These register their models.
from potluck.models import sequences as sequences
from potluck.models import vision as vision
from potluck.models import zoo as zoo
from potluck.models.blocks import PlainLSTM, Residual
from potluck.models.functional import Model, Models
from potluck.models.registry import register
from potluck.models.resize import covered, padded, sliced
from potluck.models.zoo import scaled
from potluck.trees import Params

__all__ = [
    "Model",
    "Models",
    "Params",
    "PlainLSTM",
    "Residual",
    "covered",
    "padded",
    "register",
    "scaled",
    "sliced",
]

"""Models as pure functions of their parameters; bring your own with `register`."""

from potluck.core.trees import Params
from potluck.models.functional import Model, Models
from potluck.models.registry import register
from potluck.models.resize import as_model, build_part, cut_params, pad_params

# These register their models.
from potluck.models.zoo import sequences as sequences
from potluck.models.zoo import small as small
from potluck.models.zoo import vision as vision
from potluck.models.zoo.blocks import PlainLSTM, Residual
from potluck.models.zoo.small import scale_units

__all__ = [
    "Model",
    "Models",
    "Params",
    "PlainLSTM",
    "Residual",
    "as_model",
    "build_part",
    "cut_params",
    "pad_params",
    "register",
    "scale_units",
]

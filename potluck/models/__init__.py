"""Models as pure functions of their parameters; bring your own with `register`."""

from potluck.models import zoo as zoo  # registers its models
from potluck.models.functional import Model, Models
from potluck.models.registry import register
from potluck.models.zoo import scaled
from potluck.trees import Params

__all__ = ["Model", "Models", "Params", "register", "scaled"]

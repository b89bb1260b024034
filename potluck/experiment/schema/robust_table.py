"""The [robust] table of an experiment: how updates are judged before they are merged."""

import inspect
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from potluck.core.errors import nearest
from potluck.experiment.schema.settings import Positive, Table
from potluck.rules.robust import KINDS, Mode, Robust


class Robustness(Table):
    """[robust]: for any algorithm; what it judges odd is not merged, or not as it is."""

    kind: str  # krum, multi_krum, adaptive_krum, trimmed_mean, median, clip
    attackers: Annotated[int, Field(ge=0)] | None = None  # of krums: odd ones of n; else (n - 3) / 2
    mode: Mode | None = None  # of adaptive_krum: which of them are odd: adaptive, gap, or fixed_f (all)
    share: Annotated[float, Field(gt=0, lt=0.5)] | None = None  # of trimmed_mean: left out at each end
    norm: Positive | None = None  # of clip: of the longest update; the median of a round's unless said

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, name: str) -> str:
        known = {_bare(kind): kind for kind in KINDS}
        if _bare(name) not in known:
            raise ValueError(f"no such kind; {nearest(name.lower(), list(KINDS))}")
        return known[_bare(name)]

    @model_validator(mode="after")
    def _own_settings(self) -> Self:
        for key in type(self).model_fields:
            if key not in ("kind", *_settings(self.kind)) and getattr(self, key) is not None:
                whose = " or ".join(repr(kind) for kind in KINDS if key in _settings(kind))
                raise ValueError(f"{key} = {getattr(self, key)!r}: is of kind {whose}, not {self.kind!r}")
        return self

    def with_defaults(self) -> Self:
        """With the defaults of its kind."""
        part = self.part()
        return self.model_copy(update={key: getattr(part, key) for key in _settings(self.kind)})

    def part(self) -> Robust:
        """What judges."""
        settings = {key: getattr(self, key) for key in _settings(self.kind)}
        made: Robust = KINDS[self.kind](**{key: v for key, v in settings.items() if v is not None})
        return made


def _settings(kind: str) -> list[str]:
    return list(inspect.signature(KINDS[kind]).parameters)


def _bare(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(" ", "").lower()

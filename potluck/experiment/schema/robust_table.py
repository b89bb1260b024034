"""The [robust] table of an experiment: how updates are judged before they are merged."""

import inspect
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from potluck.core.errors import nearest
from potluck.core.parts import bare
from potluck.core.ranges import Natural, Positive
from potluck.experiment.schema.table import Table
from potluck.rules.robust import Mode, Robust, list_judges

BelowHalf = Annotated[float, Field(gt=0, lt=0.5)]


class Robustness(Table):
    """[robust]: for any algorithm; what it judges odd is not merged, or not as it is."""

    kind: Annotated[
        str,
        "how updates are judged: krum, multi_krum, adaptive_krum, trimmed_mean, median or clip, see below",
    ]
    attackers: Annotated[
        Natural | None,
        "of krums: how many of n updates may be odd; else a share; of adaptive_krum at most (n - 3) / 2",
    ] = None
    mode: Annotated[
        Mode | None,
        "of adaptive_krum: how many of them are odd: those whose score is far above the others "
        "(adaptive), those from the widest gap on (gap), or all (fixed_f)",
    ] = None
    share: Annotated[
        BelowHalf | None,
        "of krum and multi_krum: share of updates that may be odd; of trimmed_mean: share left "
        "out at each end",
    ] = None
    norm: Annotated[
        Positive | None, "of clip: the longest that an update may be; unless told, the median of the round's"
    ] = None

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, name: str) -> str:
        known = {bare(kind): kind for kind in list_judges()}
        found = known.get(bare(name.replace(" ", "")))
        if found is None:
            raise ValueError(f"no such kind; {nearest(name.lower(), list(list_judges()))}")
        return found

    @model_validator(mode="after")
    def _own_settings(self) -> Self:
        for key in type(self).model_fields:
            if key not in ("kind", *_settings(self.kind)) and getattr(self, key) is not None:
                whose = " or ".join(repr(kind) for kind in list_judges() if key in _settings(kind))
                raise ValueError(f"{key} = {getattr(self, key)!r}: is of kind {whose}, not {self.kind!r}")
        if self.attackers is not None and self.share is not None:
            both = f"attackers = {self.attackers}, share = {self.share}"
            raise ValueError(f"{both}: both say how many updates may be odd; leave one out")
        return self

    def with_defaults(self) -> Self:
        """With the defaults of its kind."""
        part = self.part()
        keys = [key for key in _settings(self.kind) if key != "share" or self.attackers is None]
        return self.model_copy(update={key: getattr(part, key) for key in keys})

    def part(self) -> Robust:
        """What judges."""
        given = {key: getattr(self, key) for key in _settings(self.kind)}
        return list_judges()[self.kind](**{key: v for key, v in given.items() if v is not None})


def _settings(kind: str) -> list[str]:
    """The keys of this table that a judge takes; one of a user's own may have others, and their defaults."""
    takes = inspect.signature(list_judges()[kind]).parameters
    return [key for key in Robustness.model_fields if key in takes]

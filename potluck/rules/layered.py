"""A rule at the cloud, and what stands between it and devices."""

from collections.abc import Hashable

from potluck.core.codec import value
from potluck.core.rule import FederationFacts, Fits, Recalls, Rule


@value
class Layered:
    """Any rule above others that pass on what it asks for."""

    cloud: Rule
    below: tuple[tuple[str, Rule], ...]  # by tier, from the cloud downward

    @property
    def tiers(self) -> tuple[str, ...]:
        return tuple(tier for tier, _ in self.below)

    @property
    def recalls(self) -> tuple[Hashable, ...]:
        return self.cloud.recalls if isinstance(self.cloud, Recalls) else ()

    def at(self, tier: str) -> Rule:
        return self.cloud if tier == "cloud" else dict(self.below)[tier]

    def fits(self, federation: FederationFacts) -> None:
        for rule in (self.cloud, *(rule for _, rule in self.below)):
            if isinstance(rule, Fits):
                rule.fits(federation)

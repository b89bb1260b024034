"""When Maverick should help, or FedEdge without its contrast: where edges wait for a slow cloud."""

from math import log2, log10

from potluck.core.advice import Advice, Adviser, Arm, AsLayer, Measured, score
from potluck.core.units import percent

EVIDENCE = (
    "not confirmed as published: at its paper's full size Maverick was 4.7 points behind FedEdge, personal "
    "models beside personal models, and in short pilots of half-and-half mixing FedAvg was ahead but where "
    "the cloud is slow; the defaults, which are advised, carry over what edges learnt and have no contrast "
    "where nobody is judged odd"
)


class Maverick(Adviser):
    """Edges that go on while the cloud is silent, and models of one's own where labels differ."""

    def judge(self, measured: Measured) -> Advice:
        e = measured.edges
        if e is None:
            why = "there are no edges between devices and cloud"
            return Advice("Maverick", "maverick", 0.0, why, EVIDENCE)
        # A task with the edge that takes half of one with the cloud is worth two of them. An edge that would
        # wait for three fifths of its time gets more than another round for nothing. Stragglers ten times
        # slower are the papers' setting, but edges wait for their own ones too, so these count half. All
        # three add up.
        strength = log2(max(1.0, e.saves)) + e.idle / 0.6 + log10(max(1.0, e.straggling)) / 2
        # Personal models need something to differ in: below 0.1, labels are even (Dirichlet of 0.5 gives
        # 0.2).
        even = measured.labels.skew < 0.1
        why = (
            f"{e.count} edges of about {e.devices:.0f} devices would wait {percent(e.idle)} of their time; a "
            f"task with the cloud takes {e.saves:.1f} times as long as one with the edge ({e.nearer:.1f} "
            f"times the latency), an edge's slowest device {e.straggling:.1f} times its median"
        )
        layer = AsLayer("edges", score(strength), why)
        if even:
            why += "; labels are even, so FedEdge without Maverick's contrast will do"
            return Advice("Maverick", "fededge", score(strength), why, EVIDENCE, layer=layer)
        return Advice("Maverick", "maverick", score(strength), why, EVIDENCE, layer=layer)

    def plan_pilot(self, advice: Advice, measured: Measured, rounds: int, clients: int) -> tuple[Arm, ...]:
        """The same edges that train on, and such as wait."""
        return Arm(advice.algorithm, {}), Arm("hierfl", {})


ADVISER = Maverick()

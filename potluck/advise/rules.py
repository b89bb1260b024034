"""Which system should help, and why: one rule each, from what was measured and nothing else.

A rule turns its quantities into a strength, which is 1 where the system should begin to pay. Scores are
1 - 2^-strength, so 0.5 there; they never reach 1, so that strengths stay comparable. Thresholds come from
this project's own studies where there are some (docs/reproduction.md), else from the papers' settings; the
reason is beside each. What a study here didn't confirm is said with the advice, and lowers no score: whether
it holds on other data is what a pilot is for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import log, log2, log10
from typing import Any

from potluck.advise.measure import Measured
from potluck.report.units import duration, percent, size

HELPS, MAY_HELP, NO_REASON = "helps", "may help", "no reason"
ENOUGH = "plain FedAvg is enough"
PLANNING = 3.0  # seconds in which a gateway gauges and plans for a few devices
_HELPS_FROM, _MAY_FROM = 0.5, 0.3  # strengths of 1 and 0.5: half of what would pay is worth a try


@dataclass(frozen=True)
class Advice:
    """What a rule says of its system."""

    system: str
    algorithm: str  # that would be run
    score: float  # 0 to 1
    why: str
    evidence: str  # what was seen of it in this project's studies
    settings: dict[str, Any] = field(default_factory=dict)  # of [algorithms.NAME], as would be chosen here

    @property
    def verdict(self) -> str:
        if self.score >= _HELPS_FROM:
            return HELPS
        return MAY_HELP if self.score >= _MAY_FROM else NO_REASON


@dataclass(frozen=True)
class Verdict:
    """All rules' advice, the strongest first."""

    advice: tuple[Advice, ...]

    @property
    def first(self) -> Advice | None:
        """The one recommendation; None: plain FedAvg."""
        best = self.advice[0]
        return best if best.verdict == HELPS else None

    @property
    def runners_up(self) -> tuple[Advice, ...]:
        return tuple(a for a in self.advice if a.verdict != NO_REASON and a is not self.first)


def judge(m: Measured) -> Verdict:
    """What every rule says."""
    return Verdict(tuple(sorted((rule(m) for rule in RULES), key=lambda advice: -advice.score)))


def auxo(m: Measured) -> Advice:
    """Cohorts, for clients who contradict each other."""
    # Two groups turned by 20 degrees gain a probe 0.00 to 0.03, and Auxo nothing; turned by 180 degrees, 0.07
    # to 0.10, and Auxo 3 to 4 points; four turned groups 0.15 to 0.20, and Auxo 7.5. So it pays from 0.05 on.
    found, strength = m.conflict, max(0.0, m.conflict.gain) / 0.05
    if _score(strength) < _MAY_FROM:
        why = f"devices agree: sorting them gains a probe {100 * max(0.0, found.gain):.1f} points"
    else:
        why = (
            f"{found.groups} groups of devices see the same classes differently: a probe for each names "
            f"{percent(found.apart)} of rows right, one for all {percent(found.pooled)}"
        )
    evidence = (
        "confirmed here with 100 devices a round: 3 to 39 points over FedAvg by how far groups differ, none "
        "lost where there is one (Potluck's own mode; the paper's found no group); with few devices a round "
        "it may find none, and ifca is told how many there are"
    )
    # With 10 devices a round it found no group in pilots of 45 devices; with 15 for each, some.
    groups = max(2, found.groups)
    chosen = {"cohorts": groups, "clients": min(m.devices, 15 * groups)}
    return Advice("Auxo", "auxo", _score(strength), why, evidence, chosen)


def classter(m: Measured) -> Advice:
    """Class-wise detectors, for devices that meet classes which they don't train on."""
    # Fine-tuned models gain 4 to 11 points over one for all where there is no shift, and lose 15 to 21 at
    # full shift; they are no better than it from a shift of about 0.6 on, and much worse for those in need
    # long before. From a sixth of the rows on, a system that tells the two kinds of rows apart has a task.
    unseen, skew = m.labels.unseen, m.labels.skew
    if _score(unseen / 0.15) >= _MAY_FROM:
        why = f"{percent(unseen)} of devices' test rows are of classes that they don't train on"
        why += "" if m.server else "; it needs rows at the server, without labels (data.server)"
    elif skew > 0.2:
        why = f"labels are uneven (skew {skew:.2f}), but devices meet what they train on: ftfa may do"
    else:
        why = f"devices meet what they train on ({percent(unseen)} of test rows are of other classes)"
    evidence = (
        "not confirmed here: at full shift FedAvg had 81.7 %, it 79.1 % with Potluck's choices and 25.8 % as "
        "published; compare with fedavg and ftfa"
    )
    chosen = {
        "detect": {"contrast": 0.1},
        "distil": {"calibrate": "rows"},
        "personal": {"switch": "Familiar"},
    }
    return Advice("ClassTer", "classter", _score(unseen / 0.15), why, evidence, chosen)


def maverick(m: Measured) -> Advice:
    """Edges that go on while the cloud is silent, and models of one's own where labels differ."""
    evidence = (
        "not confirmed: at its paper's full size Maverick was 4.7 points behind FedEdge, personal models "
        "beside personal models, and level with it at a hundredth of its weights, which are advised; in "
        "short pilots FedAvg was ahead of both but where the cloud is slow"
    )
    if m.edges is None:
        return Advice("Maverick", "maverick", 0.0, "there are no edges between devices and cloud", evidence)
    e = m.edges
    # A task with the edge that takes half of one with the cloud is worth two of them. An edge that would wait
    # for three fifths of its time gets more than another round for nothing. Stragglers ten times slower are
    # the papers' setting, but edges wait for their own ones too, so these count half. All three add up.
    strength = log2(max(1.0, e.saves)) + e.idle / 0.6 + log10(max(1.0, e.straggling)) / 2
    # Personal models need something to differ in: below 0.1, labels are even (Dirichlet of 0.5 gives 0.2).
    even = m.labels.skew < 0.1
    why = (
        f"{e.count} edges of about {e.devices:.0f} devices would wait {percent(e.idle)} of their time; a "
        f"task with the cloud takes {e.saves:.1f} times as long as one with the edge ({e.nearer:.1f} times "
        f"the latency), an edge's slowest device {e.straggling:.1f} times its median"
    )
    if even:
        why += "; labels are even, so FedEdge without Maverick's contrast will do"
    # The paper's 10 and 1 drown the labels' loss; at a hundredth nothing was lost in our studies.
    chosen = {} if even else {"mu_p": 0.1, "mu_a": 0.01}
    return Advice("Maverick", "fededge" if even else "maverick", _score(strength), why, evidence, chosen)


def shufflefl(m: Measured) -> Advice:
    """Rows that move between the devices of a user."""
    evidence = (
        "in part: FedAvg's final accuracy 2.3 times sooner on writers' digits, and a point above it; with 4 "
        "of 21 people a round, rounds 1.8 times shorter but two points below FedAvg; where training takes a "
        "second, or links are a hundred times slower than phones', it doesn't pay"
    )
    if m.users is None:
        return Advice("ShuffleFL", "shufflefl", 0.0, "no user has several devices", evidence)
    u = m.users
    # Within users, Dirichlet of 0.5 (the paper's) gives a skew of 0.13. Devices four times apart make the
    # fastest wait three quarters of a round, but a gateway gauges and plans for about 3 s every round (a
    # Raspberry Pi, users of three devices), so balance in time counts by what it saves of both.
    timely = u.saved / (u.saved + PLANNING)
    strength = (u.skew / 0.12 + timely * log(max(1.0, u.spread), 4)) * min(1.0, u.share / 0.5)
    if u.saved < PLANNING:  # rounds would become longer: even labels alone must pay for that
        strength = min(0.9, strength)
    why = (
        f"{u.several:,} users have several devices ({percent(u.share)} of all), whose labels differ by "
        f"{u.skew:.2f} from their user's and whose training takes up to {u.spread:.1f} times as long; "
        f"balance would save {duration(u.saved)} a round, gauging and planning take some {duration(PLANNING)}"
    )
    return Advice("ShuffleFL", "shufflefl", _score(strength), why, evidence)


def fedrac(m: Measured) -> Advice:
    """Smaller models for smaller devices."""
    # A tenth of the devices shut out is a tenth of the data (the paper's FedAvg loses 8 of 40 devices). Late
    # ones alone are no more than a maybe: deadlines, over-commitment or fedbuff mend that with one model.
    memory = m.memory
    strength = max(memory.short / 0.1, min(0.9, memory.rescued / 0.4))
    if not memory.resizable:
        strength = min(0.9, strength)
    why = (
        f"training takes {size(memory.needed)}, which {percent(memory.short)} of devices lack; "
        f"{percent(memory.late)} take more than twice the median, and {percent(memory.rescued)} are shut out "
        "so but could train a smaller model"
    )
    if not memory.resizable and memory.short:
        why += "; this model has one width, so take another, such as mlp"
    if not memory.short and not memory.late:
        why = f"every device has the {size(memory.needed)} that training takes, and none is late"
    evidence = (
        "in part: all of 40 phones took part in time where FedAvg lost 8, but models were 6.6 points worse "
        "than FedAvg's without these; heterofl had all 40, too, and was 2.2 points better"
    )
    return Advice("Fed-RAC", "fedrac", _score(strength), why, evidence)


RULES: tuple[Callable[[Measured], Advice], ...] = (auxo, classter, maverick, shufflefl, fedrac)


def _score(strength: float) -> float:
    return float(1 - 2.0**-strength)

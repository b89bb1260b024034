"""Advice on one experiment: what `potluck advise` prints, as values."""

from dataclasses import asdict, dataclass

from potluck.advice.measure import measure_file
from potluck.advice.pilot import Pilot, run_pilot
from potluck.advice.recommendation import ENOUGH, Verdict, judge
from potluck.core.advice import Measured
from potluck.core.codec import Json
from potluck.data import Pool
from potluck.experiment import Experiment
from potluck.experiment.arguments import read_out
from potluck.experiment.launch.follower import Show, read_show
from potluck.experiment.prepare import name_pool

TOLD = ("system", "algorithm", "score", "why", "evidence", "settings", "verdict")  # of each system's advice


@dataclass(frozen=True, eq=False)
class Advised:
    """The advice in a line (`headline`), what was measured, what every system says to it, and the pilots."""

    measured: Measured
    verdict: Verdict
    pilot: Pilot | None = None

    def __repr__(self) -> str:
        tried = "" if self.pilot is None else f", {len(self.pilot.trials)} pilots"
        return f"<Advised: {self.headline}; {self.measured.devices:,} devices measured{tried}>"

    @property
    def recommended(self) -> str | None:
        """The algorithm that should help; None: plain FedAvg is enough."""
        return None if self.verdict.first is None else self.verdict.first.algorithm

    @property
    def headline(self) -> str:
        """The advice in a line."""
        rest = ", ".join(f"{a.algorithm} ({a.verdict})" for a in self.verdict.runners_up)
        first = ENOUGH if self.recommended is None else f"try {self.recommended}"
        return f"{first}{f'; then: {rest}' if rest else ''}"

    def summary(self) -> dict[str, Json]:
        """All of it for machines."""
        m, found = self.measured, self.measured.conflict
        keys = ("groups", "explained", "pooled", "apart", "chance", "gain")
        stack = self.verdict.stack
        told: dict[str, Json] = {
            "advice": self.headline,
            "recommended": self.recommended,
            "stack": None
            if stack is None
            else {"layers": [*stack.layers], "layer": {**stack.tables}, "why": {**stack.why}},
            "runners_up": [a.algorithm for a in self.verdict.runners_up],
            "systems": [{key: getattr(a, key) for key in TOLD} for a in self.verdict.advice],
            "measured": {
                "devices": m.devices,
                "looked_at": len(m.looked_at),
                "server_rows": m.server,
                "conflict": {key: getattr(found, key) for key in keys},
                **{k: asdict(getattr(m, k)) for k in ("labels", "speeds", "memory")},
                **{k: None if (v := getattr(m, k)) is None else asdict(v) for k in ("users", "edges")},
            },
        }
        if self.pilot is not None:
            told["pilot"] = {
                "trials": [asdict(t) for t in self.pilot.trials],
                "margin": self.pilot.margin,
                "best": self.pilot.best,
                "agrees": self.pilot.agrees,
                "remarks": [*self.pilot.remarks],
                "stack": None if self.pilot.stack is None else asdict(self.pilot.stack),
            }
        return told


def advise(
    experiment: Experiment,
    *,
    pilot: bool = False,
    progress: Show | bool | None = None,
    pool: Pool | None = None,
) -> Advised:
    """Say which system should help in the federation of an experiment, and why; nothing is written.

    `experiment`: its data and its fleet are what is measured.
    `pilot`: also try the advice in short runs on validation rows. `progress`: True shows how far they are.
    `pool`: your own data, as for `run`.
    """
    read_out(experiment, None)
    if pool is not None:
        experiment = name_pool(experiment, pool)
    _, measured = measure_file(experiment, pool)
    verdict = judge(measured)
    tried = run_pilot(experiment, verdict, measured, read_show(progress), pool=pool) if pilot else None
    return Advised(measured, verdict, tried)

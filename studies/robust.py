"""Some of the devices attack: every robust aggregation, around FedAvg.

`potluck study robust --scale paper` (flipped signs), or `robust_strong` (those three times as long, and
crafted updates), takes Fashion-MNIST and 48 runs, all at one rate; 30 % attack.

`robust_colluding` takes 168 runs: eight judges, none among them, against seven attacks of devices that
collude, of seeds 1, 2 and 3. Designed before its first run: 20 % of the same 50 devices attack, and judges
that are told a share are told 20 %. Attacks are as their papers have them, at the defaults of
`fleet.attack`, colluders knowing what honest devices send; the backdoor's patch is 3 x 3 pixels, on 30 % of
attackers' rows, for class 0. What counts: the mean accuracy of honest devices, with its difference to no
judge, seed by seed; then the worst tenth of them and the global test. A backdoor leaves accuracy as it is,
so what counts there is its success, less being better; other attacks have none. Precision and recall are of
judges that refuse updates; the others leave them blank. How many of a round's 20 devices attack is left
to chance, as its sampling is.
"""

from dataclasses import replace
from typing import Any

from _maverick import PRECISION, RECALL

from potluck.experiment.runs import Run
from potluck.experiment.study import ACCURACY, WORST, Arm, Measure, Scale, Study, overlay

QUICK: dict[str, Any] = {
    "data": {"source": "digits", "clients": 20, "alpha": 0.5},
    "model": {"name": "linear"},
    "train": {"batch": 10, "lr": 0.1},
    "stop": {"rounds": 4},
    "evaluate": {"rounds": 4},
    "run": {"executor": "stacked"},
}
TABLE: dict[str, Any] = {
    "data": {"source": "fashion-mnist", "limit": 10_000, "clients": 50, "alpha": 0.5},
    "model": {"name": "mlp"},
    "fleet": {"source": "mobile"},
    "train": {"batch": 32, "epochs": 1, "lr": 0.05},
    "stop": {"rounds": 60},
    "evaluate": {"rounds": 10},
    "run": {"executor": "stacked", "graphs": False},
}
GLOBAL = Measure("global test", "global_accuracy", "share", "more")
MEASURES = (ACCURACY, WORST, GLOBAL, PRECISION, RECALL)


def find_success(run: Run) -> float | None:
    """The share of triggered rows that are taken for the backdoor's class; None without a backdoor."""
    return run.summary.get("backdoor_success")


BACKDOOR = Measure("backdoor success", find_success, "share", "less")


def judged(name: str, **robust: Any) -> Arm:
    return Arm(name, "fedavg", {"clients": 20}, {"robust": robust} if robust else {})


def attacked(kind: str, share: float = 0.3, **more: Any) -> dict[str, Any]:
    return {"fleet": {"attack": {"kind": kind, "share": share, **more}}}


def told(arm: Arm, share: float) -> Arm:
    """The arm, told of another share of attackers if it is told of one."""
    if "share" not in arm.changes.get("robust", {}):
        return arm
    return replace(arm, changes=overlay(arm.changes, {"robust": {"share": share}}))


ARMS = [
    judged("no judge"),
    judged("Krum", kind="krum", share=0.3),
    judged("Multi-Krum", kind="multi_krum", share=0.3),
    judged("Adaptive-Krum", kind="adaptive_krum"),
    judged("Adaptive-Krum, gap", kind="adaptive_krum", mode="gap"),
    judged("trimmed mean", kind="trimmed_mean", share=0.3),
    judged("median", kind="median"),
    judged("norm clipping", kind="clip"),
]

STUDY = Study(
    title="Robust aggregation: 30 % sign-flippers",
    question="FedAvg with 20 of 50 devices a round, labels dealt by Dirichlet(0.5). Whose mean survives "
    "flipped signs, and what does judging cost when nobody attacks?",
    arms=ARMS,
    scenarios={"honest": {}, "sign flip": attacked("sign_flip")},
    measures=MEASURES,
    quick=Scale(QUICK, seeds=(1,)),
    paper=Scale(TABLE, seeds=(1, 2, 3), limit=48),
)

STUDIES = {
    "strong": replace(
        STUDY,
        title="Robust aggregation: 30 % strong attackers",
        question="The same crowd; attackers flip signs and triple the length, or send what Fang et al. "
        "craft.",
        scenarios={"sign flip x 3": attacked("sign_flip", scale=3.0), "Fang": attacked("fang")},
    ),
    "colluding": replace(
        STUDY,
        title="Robust aggregation: 20 % colluding attackers",
        question="The same crowd; one device in five attacks, and attackers craft updates together from what "
        "honest devices send: against trimmed means and Krum (Fang et al.), a little beyond the mean "
        "(ALIE), as far from it as honest updates are apart (Min-Max, Min-Sum), against its direction (IPM); "
        "or they plant a backdoor. Whose mean survives whom? Attacks, judges (told of 20 %, where they are "
        "told), seeds and measures were fixed before the first run.",
        arms=[told(arm, 0.2) for arm in ARMS],
        scenarios={
            name: attacked(kind, 0.2)
            for name, kind in (
                ("Fang", "fang"),
                ("Fang-Krum", "fang_krum"),
                ("ALIE", "alie"),
                ("Min-Max", "min_max"),
                ("Min-Sum", "min_sum"),
                ("IPM", "ipm"),
                ("backdoor", "backdoor"),
            )
        },
        measures=(ACCURACY, WORST, GLOBAL, BACKDOOR, PRECISION, RECALL),
        quick=Scale(QUICK, seeds=(1,), limit=56),
        paper=Scale(TABLE, seeds=(1, 2, 3), limit=168),
    ),
}

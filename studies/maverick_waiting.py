"""What edges make of the time in which the cloud is silent, and how soon that shows.

`potluck study maverick_waiting --scale paper` takes Fashion-MNIST and 60 runs; `maverick_waiting_uneven` 30,
`maverick_waiting_poisoned` 36. A run takes less than 20 s of one core.

The design, fixed before the first run:
- Arms: FedEdge as published (half and half, Adaptive-Krum), Maverick at its defaults (which carries over and
  judges nobody), and edges that wait: HierFL, HybridFL; FedAvg without edges. Three seeds. Nothing is tuned.
- `maverick_waiting`: the cloud 0.1, 0.5, 2 and 5 s away, one way.
- `maverick_waiting_uneven`, at 2 s: a straggler edge, whose ten phones are four times slower than the
  others', so that rounds between answers are uneven; and edges of their own labels: five edges of two devices
  with two classes each, so that an edge knows four of ten at most. Here Maverick that mixes half and half
  (and shows its edges before mixing) stands in HybridFL's place: the default of `mix` stays what it is if
  carrying is ahead in the cloud's and personal models, and the page says what it costs in the edges' view.
- `maverick_waiting_poisoned`, at 2 s: three of every ten devices collude (Fang-Krum, ALIE, Min-Max, IPM), and
  every arm lets Adaptive-Krum judge.
- What counts: time to 90 % of the best final accuracy, and final accuracy, in each view (see `_waiting.py`).
- Expected: Maverick sooner than HierFL and FedEdge as published wherever the cloud is 0.5 s away or more, at
  2 s by 1.3 times at least; never behind FedEdge as published by more than a point in any view at the end;
  at chance nowhere.
"""

from dataclasses import replace

from _waiting import CROWD, HIERFL, LOCAL, MAVERICK, MEASURES, PUBLISHED, QUICK, away, page

from potluck.experiment.study import Arm, Scale, Study, overlay

SEEDS = (1, 2, 3)
# Milliseconds a sample, of an edge's ten phones: a spread of 4 within an edge; the last edge is slower.
PACES = [15.0 * 4 ** (i / 9) for i in range(10)]
SLOWER = 4
PHONES = [
    {"compute": pace * slower, "down": 1e8, "latency": 0.02} for slower in (1, 1, SLOWER) for pace in PACES
]
STRAGGLER = {"fleet": {"source": "table", "rows": PHONES, "compute": None, "down": None}}
OWN_LABELS = {
    "data": {"partition": "shards", "classes_per_client": 2, "clients": 10, "limit": 2_000},
    "fleet": {"edges": 5},
}
COLLUDING = ("fang_krum", "alie", "min_max", "ipm")

STUDY = Study(
    title="Maverick: what edges make of the time in which the cloud is silent",
    question="The cloud is 0.1 to 5 s away. Edges train on meanwhile (Maverick, FedEdge), or wait (HierFL, "
    "HybridFL), or there are none (FedAvg): who is at 90 % of the best final accuracy first?",
    arms=[PUBLISHED, MAVERICK, HIERFL, Arm("HybridFL", "hybridfl"), Arm("FedAvg", "fedavg")],
    scenarios={f"{latency:g} s away": away(latency) for latency in (2.0, 0.1, 0.5, 5.0)},
    measures=MEASURES,
    page=page,
    quick=Scale(QUICK, seeds=(1,), scenarios=("0.5 s away",)),
    paper=Scale(CROWD, seeds=SEEDS, limit=60),
)

HALF = Arm("Maverick, half", "maverick", {"mix": "half"})
NEAR = away(2.0)
UNEVEN = replace(
    STUDY,
    title="Maverick: a straggler edge, and edges of their own labels",
    question="The cloud is 2 s away. One edge is four times slower than the others, or every edge knows four "
    "classes at most: does carrying over drag the cloud's model to who holds more rounds, and what does an "
    "edge's own model keep?",
    arms=[PUBLISHED, MAVERICK, HALF, HIERFL, Arm("FedAvg", "fedavg")],
    scenarios={
        "a straggler edge": overlay(away(2.0, SLOWER * LOCAL), STRAGGLER),
        "own labels": overlay(NEAR, OWN_LABELS),
    },
    quick=replace(STUDY.quick, scenarios=("own labels",)),
    paper=Scale(CROWD, seeds=SEEDS, limit=30),
)

POISONED = replace(
    STUDY,
    title="Maverick: edges that train on among colluding attackers",
    question="The cloud is 2 s away, and 3 of every 10 devices collude. Every edge lets Adaptive-Krum judge: "
    "is what edges learn in the meantime still worth something?",
    arms=[PUBLISHED, MAVERICK, HIERFL],
    scenarios={
        kind: overlay(
            NEAR, {"fleet": {"attack": {"kind": kind, "per_edge": 3}}, "robust": {"kind": "adaptive_krum"}}
        )
        for kind in COLLUDING
    },
    quick=replace(STUDY.quick, scenarios=("ipm",)),
    paper=Scale(CROWD, seeds=SEEDS, limit=36),
)

STUDIES = {"uneven": UNEVEN, "poisoned": POISONED}

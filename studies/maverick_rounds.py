"""Local rounds while the cloud is silent: help on even data, drift on one-class devices (Figures 2 to 5, 12).

`potluck study maverick_rounds --scale paper` takes Fashion-MNIST and 32 runs of 40 rounds
at a rate of 0.1.
"""

from _maverick import EDGE, GLOBAL, PERSONAL, QUICK, SHORT, TABLE, WHOLE, fededge, maverick, rounds_to

from potluck.experiment.study import Measure, Scale, Study, laid_over


def one_edge(rounds: int) -> list[int]:
    """Two local rounds everywhere but at one edge."""
    return [2, 2, 2, 2, rounds]


STUDY = Study(
    title="Maverick: local rounds while the cloud is silent",
    question="One of five edges holds more local rounds than the others, or several do. On even data, does "
    "it help? On devices of one class each, two below every edge, whom does it help? Does Maverick resist?",
    arms=[
        fededge("FedEdge, 1 each", local_rounds=1),
        fededge("FedEdge, 2 each"),
        fededge("FedEdge, one with 5", local_rounds=one_edge(5)),
        fededge("FedEdge, one with 20", local_rounds=one_edge(20)),
        fededge("FedEdge, three with 5", local_rounds=[2, 2, 5, 5, 5]),
        maverick("Maverick, 2 each"),
        maverick("Maverick, one with 5", local_rounds=one_edge(5)),
        maverick("Maverick, one with 20", local_rounds=one_edge(20)),
    ],
    scenarios={
        "even data": {"data": {"partition": "iid"}},
        "one class each": {
            "data": {"partition": "shards", "classes_per_client": 1, "clients": 10, "limit": 2_000},
            "robust": {"kind": "adaptive_krum", "attackers": 0},  # two devices can't judge each other
        },
    },
    measures=(
        WHOLE,
        GLOBAL,
        EDGE,
        PERSONAL,
        Measure("rounds to 70 % (global)", rounds_to("global", 0.7), "number", "less"),
    ),
    quick=Scale(
        laid_over(QUICK, {"fleet": {"edges": 5}, "data": {"clients": 20}}),
        seeds=(1,),
        scenarios=("even data",),
    ),
    paper=Scale(laid_over(TABLE, SHORT), seeds=(1, 2)),
)

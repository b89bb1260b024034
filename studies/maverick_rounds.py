"""Local rounds while the cloud is silent, on even data (Figures 2 to 4, 12).

`potluck study maverick_rounds --scale paper` takes Fashion-MNIST and 36 runs of 40 rounds at a rate of 0.1.
"""

from _maverick import EDGE, GLOBAL, PERSONAL, QUICK, SHORT, SOON, TABLE, WHOLE, fededge, maverick

from potluck.experiment.study import Scale, Study, overlay


def one_edge(rounds: int) -> list[int]:
    """Two local rounds everywhere but at one edge."""
    return [2, 2, 2, 2, rounds]


MILD = {"mu_p": 1.0, "mu_a": 0.1}  # a tenth of the paper's: with the paper's hardly anything is learnt

STUDY = Study(
    title="Maverick: local rounds while the cloud is silent",
    question="Labels are dealt evenly. One of five edges holds more local rounds than the others, or several "
    "do: does it help?",
    arms=[
        fededge("FedEdge, 2 each"),
        fededge("FedEdge, 1 each", local_rounds=1),
        fededge("FedEdge, one with 5", local_rounds=one_edge(5)),
        fededge("FedEdge, one with 20", local_rounds=one_edge(20)),
        fededge("FedEdge, three with 5", local_rounds=[2, 2, 5, 5, 5]),
        maverick("Maverick, 2 each"),
        maverick("Maverick, one with 20", local_rounds=one_edge(20)),
        maverick("Maverick (1, 0.1), 2 each", **MILD),
        maverick("Maverick (1, 0.1), one with 20", **{"local_rounds": one_edge(20), **MILD}),
    ],
    measures=(WHOLE, GLOBAL, EDGE, PERSONAL, SOON),
    quick=Scale(
        overlay(QUICK, {"fleet": {"edges": 5}, "data": {"clients": 20, "partition": "iid"}}), seeds=(1,)
    ),
    paper=Scale(overlay(TABLE, SHORT, {"data": {"partition": "iid"}}), seeds=(1, 2, 3, 4)),
)

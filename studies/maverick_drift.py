"""Local rounds while the cloud is silent, where each device knows one class (Figure 5).

`potluck study maverick_drift --scale paper` takes Fashion-MNIST and 36 runs of 40 rounds at a rate of 0.1.
"""

from dataclasses import replace

from _maverick import QUICK, SHORT, TABLE
from maverick_rounds import STUDY as EVEN

from potluck.experiment.study import laid_over

ONE_CLASS = {
    "data": {"partition": "shards", "classes_per_client": 1, "clients": 10},
    "robust": {"kind": "adaptive_krum", "attackers": 0},  # two devices can't judge each other
}

STUDY = replace(
    EVEN,
    title="Maverick: uneven local rounds where devices know one class each",
    question="Five edges with two devices each, every device with a class of its own. One edge holds more "
    "local rounds: does it drag the others' classes down, and does Maverick resist?",
    quick=replace(EVEN.quick, experiment=laid_over(QUICK, {"fleet": {"edges": 5}}, ONE_CLASS)),
    paper=replace(EVEN.paper, experiment=laid_over(TABLE, SHORT, ONE_CLASS, {"data": {"limit": 2_000}})),
)

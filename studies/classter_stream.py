"""What the parts of asynchronous ClassTer do, among very unequal devices (D4).

`potluck study classter_stream --scale paper` takes Fashion-MNIST and 18 runs.
"""

from _classter import FULL_SHIFT, GLOBAL, GRID, NO_SHIFT, QUICK, TABLE, streaming
from _tuning import try_rates

from potluck.experiment.study import Scale, Study, overlay

FIRST = "ClassTer async"
SLOW = {"fleet": {"preset": "d4"}, "stop": {"rounds": None, "seconds": 30_000.0}}

STUDY = Study(
    title="ClassTer, asynchronous: what its parts do",
    question="Half of the devices take 20 times as long. Without critical periods, with openness as printed, "
    "without the clamp, and with counters that are published at once.",
    arms=[
        streaming(FIRST),
        streaming("no critical period", tuned_as=FIRST, period="off"),
        streaming("openness as printed", tuned_as=FIRST, period="cumulative"),
        streaming("no clamp", tuned_as=FIRST, clamp=False),
        streaming("published at once", tuned_as=FIRST, publish=1),
    ],
    measures=(NO_SHIFT, FULL_SHIFT, GLOBAL),
    quick=Scale(
        overlay(QUICK, SLOW, {"stop": {"seconds": 2.0}, "evaluate": {"rounds": None, "seconds": 1.0}}),
        seeds=(1,),
    ),
    paper=Scale(
        overlay(TABLE, SLOW, {"evaluate": {"rounds": None, "seconds": 3_000.0}}),
        seeds=(1, 2, 3),
        tune=try_rates(GRID, 0.5),
    ),
)

"""ShuffleFL that plans for groups of characters (its Figure 16, at Table 5's shrinkages for Shakespeare).

`potluck study shufflefl_characters --scale paper` takes a file of Shakespeare's roles and 28 runs of 10 to
30 s of one core. Users are 15 roles, three of them a round; an LSTM a quarter as wide as LEAF's reads 20
characters. A round of FedAvg takes some 5 minutes on the clock, in the paper 9, so that planning weighs about
as much. What stands for SLSQP is the same as in shufflefl_merging.
"""

from _shufflefl import FEDAVG, HAR, MEASURES, QUICK, QUICK_SIZES, page, sizes
from _tuning import try_rates
from shufflefl_merging import FIRST, PAPERS, arms, times

from potluck.experiment.study import Results, Scale, Study, overlay

GAMMAS = (1.0, 0.2, 0.125, 0.1)  # none; of a Raspberry Pi 4, a TX2 and a Nano
TIMED = (1.0, 0.2, 0.1)  # on a Pi 4 plans of an eighth take about as long as of a tenth
CHARACTERS = 81

ROLES = {
    "data": {
        "source": "shakespeare",
        "length": 20,
        "stride": 20,
        "server": 0.02,  # by which characters are merged; some 27 are so rare that it has none
        "partition": "user_devices",
        "users": 15,  # some 50 devices of about 110 rows
        "devices_per_user": [3, 4],
        "alpha": 0.5,
        "smallest": 40,
        "test": 0.05,
    },
    "model": {"name": "char_lstm", "width": 0.25, "depth": 0.5},  # one layer of 64
    "fleet": HAR["fleet"],
    "train": HAR["train"],
    "stop": {"rounds": 15},
    "evaluate": {"rounds": 1},
    "run": HAR["run"],
}
ROLES_SIZES = sizes(users=3, devices=10, edges=2, steps=20, seconds=300.0)


def parts(results: Results) -> str:
    said = f"What SLSQP takes for {CHARACTERS} characters on a Raspberry Pi 4, by the paper's tables"
    return f"{page(results)}\n\n{said}:\n\n{times(GAMMAS, CHARACTERS)}"


STUDY = Study(
    title="ShuffleFL: plans for groups of characters",
    question="Shakespeare's next character is one of 81, and many are rare. Which characters look alike is "
    "judged by a small sample at the server; those that it lacks fill up the smallest groups. What does it "
    "cost in accuracy to plan for 16, 10 or 8 groups, and what does it save in time?",
    arms=[FEDAVG, *arms("search", GAMMAS), *arms("SLSQP", TIMED, planner=PAPERS)],
    measures=MEASURES,
    page=parts,
    notes="The paper's Figure 16 is of 35 spoken words: 65.3, 65.7, 66.9 and 68.3 % for gamma 0.2, 0.25, 0.3 "
    "and 0.35. Of Shakespeare, with gamma by Table 5, it has 50.7 % after 6.8 h; FedAvg 46.1 % after 44.1 h. "
    "On a Pi it measured plans of 80 characters, 66 s with 3 devices and 501 s with 4, and of 16 groups; "
    "times of 81, 10 and 8 are by a curve through all its numbers, which gives 143 and 851 s for 81.",
    quick=Scale(
        overlay(QUICK, QUICK_SIZES, {"data": {"server": 0.2}}),
        seeds=(1,),
        arms=("FedAvg", FIRST, "search, gamma 0.2", "SLSQP, gamma 0.2"),
    ),
    paper=Scale(overlay(ROLES, ROLES_SIZES), seeds=(1, 2, 3), tune=try_rates([0.003, 0.01], 0.5)),
)

"""Auxo (Liu et al. 2023, Auxo: Efficient Federated Learning via Scalable Client Clustering).

In a large population a few kinds of clients share a model that suits none of them. Auxo lets cohorts find
themselves: a cohort clusters the updates that it gets anyway; when its members fall into camps it splits,
each part going on with its own copy of the model; and a device that is told after each round how well it
fitted asks, when it next checks in, for the cohort that suits it best. What is known of a device lives on the
device, so the server holds no more for a million of them than for a hundred.

Deviations: rewards of the paper's formula would count an explored cohort's accumulated reward; the text's
instant one is used. Labels begin with a cohort, not with round 1, else no cohort would split twice. The split
bonus goes by the parent's reward before the split. Epsilon decays by rounds, not by requests. A cohort has an
equal share of the clients; in `Faithful` its learning rate follows that share (the paper's linear rule).
`Calibrated` keeps updates out of the model that are like no cohort's or whose device falsely claims to fit,
and shuts devices out who claim what they weren't told; `Faithful` counts false claims alone. It measures the
paper's criterion on the last layer, centred, over five rounds, or if asked on main directions, since on whole
updates it never holds; `Calibrated` is Potluck's own way to tell sides and cohorts. `Faithful` isn't the
authors' code either: of that it has gamma and how many members of each side must be known. `Authors` is: no
criterion by heterogeneity, no guesses about cohorts never tried and no scaled rates; rewards add up,
newcomers are labelled by their nearest neighbour, and splits go by counts or come at given rounds (but
epsilon decays by rounds there too, and clustering never freezes).
Devices are invited when a cohort lacks them, rather than turned away. A device never seen uses the cohort
with the least loss on its own rows.
"""

from collections.abc import Mapping
from typing import Final

FIDELITY: Final = (
    "paper, with thresholds of the authors' code (as published; the default, calibrated, is Potluck's own)"
)
# The paper leaves the rule inside and the numbers of devices and cohorts to whoever runs it.
PUBLISHED: Final[Mapping[str, object]] = {"criterion": "faithful", "first_split": 20}

"""ShuffleFL (Zhu, Yang and Wang 2024, Addressing Heterogeneity in Multi-Device Federated Learning).

A user's devices may exchange rows through the user's gateway. Before they train, the user's hub looks for
moves after which the slowest of them is fast, all take about as long, and each has about as many rows of
every class. Then they train; the hub averages its devices and the cloud its users, both by samples. Slow
users are to save time, fast ones to balance classes: each has an alpha of its own, by how long it is expected
to take. Rows stay where they were moved to.

By default, in mode `potluck`, who is slower than the median user of a round trains fewer batches, as many as
there is time for, and its update counts for those alone (`cap`). What a user needs is judged by its devices'
rows and pace before any row moves, so all users of a round are gauged before they are sent the model. Plans
count what a device's model takes down and up (`transfer`): one with a slow link may give all rows away, and
then needs no model and counts in no balance. SLSQP relaxes without that.

There is no authors' code. What the paper leaves open or prints in error is settled where it is computed: its
imbalance is taken of shares (planner/problem), Eq. 8 goes by its text (scaling), rows are planned whole
(planner/search; `planner = "slsqp"` is the paper's). Deviations: alpha, which the paper never gives, is the
mean of what makes both terms of the objective equal at the users of the first round; in that round each uses
its own. Hubs measure their devices' pace anew before every plan, by ballast and a few forward passes; that
takes time, and counts in how long a user takes. Where fewer than two of a round's users have taken part
before, nobody is asked how it has changed. Classes are not merged unless `gamma` says so; the map is made
once, of the server's rows, by their labels and the first model, and t-SNE itself takes no time on the clock;
classes of which the server has no row fill up the smallest groups. Devices outside any user are chosen as
users are, and train as in FedAvg; a cap goes by what they claim. Everybody is served the cloud's model.
"""

from collections.abc import Mapping
from typing import Final

PUBLISHED: Final[Mapping[str, object]] = {"cap": False, "transfer": False}

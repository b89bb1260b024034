"""TiFL (Chai, Ali, Zawad et al. 2020, TiFL: A Tier-based Federated Learning System).

A round takes as long as its slowest device, so devices that are about as fast should train together. They are
timed first and sorted into tiers; every round draws one tier and then devices within it. So that slow tiers'
data aren't forgotten, tiers on whose devices the model is less accurate are drawn more often; credits limit
how often a tier, a slow one above all, can be.

Formulas and defaults are those of a public implementation by others: tiers of equal size; chances by rank of
accuracy, every ten rounds. (In the paper, chances change only if the accuracy of the tier at hand didn't rise
meanwhile.) Deviations: devices are timed by training once, or `profile_rounds` times, of which nothing is
used; one that is late by then counts as long as the deadline and so is in the last tier rather than left out,
but one that refuses is. Those that appear later are timed at the next look at accuracy, and all are sorted
anew. Accuracy is that of some devices' own training rows, by tasks of their own, for test rows mustn't steer
a run. Credits are unlimited unless given; when all are used up, all are given anew. Tiers of which nobody is
there aren't drawn. Deadlines and over-commitment can be had.

Everybody trains the same model. Where some can't hold it, choose a smaller one by `[model] width`.
"""

from typing import Final

FIDELITY: Final = "code of others"

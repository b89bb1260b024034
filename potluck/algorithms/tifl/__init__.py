"""TiFL (Chai, Ali, Zawad et al. 2020, TiFL: A Tier-based Federated Learning System).

A round takes as long as its slowest device, so devices that are about as fast should train together. They are
timed first and sorted into tiers; every round draws one tier and then devices within it. So that slow tiers'
data aren't forgotten, tiers on whose devices the model is less accurate are drawn more often; credits limit
how often a tier, a slow one above all, can be.

Formulas and defaults are those of a public implementation by others (FLGo): five tiers of equal size; chances
by rank of accuracy among tiers with credit, every ten rounds; before that, equal ones; a draw that falls on a
tier without credit is repeated. Credits are the run's rounds in equal shares, so that all tiers have had the
same number of rounds at the end of a run. (In the paper, chances change only if the accuracy of the tier at
hand didn't rise meanwhile.)

Deviations: that code reads devices' times off its simulator, here they are measured: devices train once, or
`profile_rounds` times, of which nothing is used, nor counted as a round; one that is late by then counts as
long as the deadline and so is in the last tier rather than left out, but one that refuses is. Those that
appear later are timed at the next look at accuracy, and all are sorted anew. That code's accuracy is the mean
over all devices of a tier, of their validation rows; here it is of the training rows of `examined` devices,
all rows counting alike, by tasks of their own: what is held out is for choosing settings, and mustn't steer a
run. It may draw a device twice for a round, here all are different. Its shares of the rounds always suffice.
Here they may not: a tier may be away while it has credit, and a run may be longer than `rounds`. So credits
are given anew to all as soon as none of the tiers that are there has any; a tier is given one at least. Where
a run has no last round, because it ends by seconds, credits are unlimited. Tiers of which nobody is there
aren't drawn. Deadlines and over-commitment can be had.

Everybody trains the same model. Where some can't hold it, choose a smaller one by `[model] width`.
"""

from typing import Final

FIDELITY: Final = "code of others"

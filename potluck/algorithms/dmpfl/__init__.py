"""DM-PFL (Zhang, Zhou, Wang, Tong 2023, Hitchhiking Generic Federated Learning for Efficient Shift-Robust
Personalization).

A sparse global model and a sparse model of each device share weights: a device's mask says which places its
model uses; where the global mask is open too, the weight is the global one, elsewhere the device's own.
Rounds go through three phases, `turns` times: dual (half of the rounds; devices train under their own masks,
which they adjust now and then, and the server merges weights and masks), generic (a quarter; FedAvg under the
global mask) and personal (a quarter; devices train what is theirs alone and send nothing of it). A row is
answered by the device's own model where both models' outputs are alike; where they aren't, the row is unlike
those of the device, and the global model answers.

theta_g = w_g m_g; theta_c = w_g (m_g and m_c) + w_c (m_c - m_g). These formulas and the switch are those of
the authors' page, which has no code; phases, constants and what follows are as in an implementation by others
(boyi-liu/KDD23-DM-PFL). The first layer, biases and norms have no mask and are shared. Masks begin with the
largest initial weights, layer by layer. Weights are pruned by size and regrown by gradient, in round r of R
alpha/2 (1 + cos(pi r/R)) of the open places. Votes count by samples. What is a device's own starts from 0 in
every personal phase.

Deviations: that code adjusts masks within a training, after its fourth epoch, by one batch's gradient. Here
it happens before the training, in rounds in which it is due, by the steps that the gradients of the device's
last dual training would have taken at closed places; so a device's first training adjusts nothing. The server
averages a place over those that have it open (there, others count as 0), keeps places with at least half of
the votes, of these the largest weights, and fills up by votes: all masks of a layer are of one size. A device
that never took part has the global mask, hence the global model; at the cloud both views are one. Seconds are
those of dense training, because scattered zeros save a device nothing. Bytes are of the values at open places
and of masks at a bit a place: down both; up the mask in the dual phase only, and in the personal phase no
more than the mean loss. Phases are cut from the run's rounds unless `rounds` says otherwise: a run that is
shorter than that ends before its last phase, a longer one stays in it. Where a run has no last round, because
it ends by seconds, they are cut from 100. Where turns would have fewer than four rounds each, there are fewer
turns; fewer than four rounds in all are dual. Devices are chosen uniformly. The threshold isn't published.
Deadlines and over-commitment can be had.
"""

from typing import Final

FIDELITY: Final = "code of others"

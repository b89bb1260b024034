"""HeteroFL (Diao, Ding, Tarokh 2021, Computation and Communication Efficient FL for Heterogeneous Clients).

Weak devices train narrow models, strong ones wide models, and yet there is one global model: a narrow one is
the first channels of every hidden layer. Each number of the global model becomes the mean over the devices
of the round that have it; what nobody has stays.

From the authors' code: five levels, each of half the width of the one above; one vote a device (`weigh`:
samples, as in FedAvg); a scaler, by which the narrow layers' outputs are divided by the level's rate;
gradients of a length of 1 at most (`clip`); masked losses, where the logits of classes that a device doesn't
hold are 0 and its rows of the last layer for these classes don't count.

Deviations: there is no static BatchNorm. In the authors' code a norm follows every scaler, and undoes it in
training; here ResNets and MobileNets have GroupNorm in these places, but perceptrons, LeNet and LSTMs have no
norm. There the scaler makes a narrow model's gradients up to 1 / rate times as long for every layer that they
pass, and only clipping keeps it from blowing up: don't turn off `clip` alone. Both were kept by measurement
(docs/baselines/floors.md): with clipping LeNet on digits has 60 % with the scaler and 31 % without, on
validation rows, though a perceptron there has 92 and 94 %. Changes travel, not weights
(the same mean). A narrow model that is used by itself keeps its scaler, as it was trained (the authors' works
in training only); an LSTM's gates have none. The authors deal levels out by lot, once or anew in every round;
here a device's level follows from its claimed speed: the fastest fifth has the widest model, and so on (`by`:
memory, the widest that fits, or lot; or `given` for every device). Of a crowd beyond 10,000, the bounds are
those of so many. Whoever can't train its level in its claimed memory, or refuses to, has a narrower one; one
for whom none is narrow enough takes no part. Deadlines and over-commitment can be had.

`inplace` adds in-place distillation (Yu, Huang 2019, Universally Slimmable Networks): in each step a device
trains its own model by labels and every narrower level's, which lies in it, by what its own says. Their time
is charged, and one more pass of its own.

Devices are served their level's model (`level`) and the whole one (`global`); the server also narrow ones, by
rate. To compare with FedAvg on the smallest model, which everybody can train, use `fedavg` with a `[model]
width` of as much times the last rate.
"""

from typing import Final

FIDELITY: Final = "authors' code"

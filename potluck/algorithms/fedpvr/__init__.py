"""FedPVR (Li, Schmidt, Alstrom, Stich 2023, On the Effectiveness of Partial Variance Reduction in FL).

What devices with different data disagree about are a model's last layers; the layers before them are learnt
well by plain averaging. So only the last ones are corrected by SCAFFOLD's control variates, which are then
small, and the rest trains as in FedAvg, with momentum.

As in the authors' code: c_i by option II; momentum moves the layers that aren't corrected, and spares those
that are; updates are averaged equally; c moves by 1/N of the sum of changes, N being all devices.
Deviations: the layers are counted from the end, the head first (the code names an index for each of its two
models: the classifier, which in VGG-11 is several layers and in ResNet-8 the head alone); control variates
travel for these layers only. Below a parent, an aggregator keeps c for its own devices, and what it reports
weighs as many votes as devices were heard. A device without rows is left out of the mean; weight decay,
deadlines and over-commitment can be had.

`local_head` is another rule under the same name, that of comparisons which describe FedPVR as sharing a body
alone (like FedPer): the last layers stay on the device, are trained with the rest, and nothing is corrected;
bodies are averaged by samples. Devices use the global body with their own head, the view `personal`. They are
sent the initial head, too, for those that have none yet; it is all that the view `global` has for a head.
"""

from typing import Final

FIDELITY: Final = "authors' code"

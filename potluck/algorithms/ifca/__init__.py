"""IFCA (Ghosh, Chung, Yin, Ramchandran 2020, An Efficient Framework for Clustered Federated Learning).

Devices belong to hidden groups, each of which needs a model of its own. The server sends all models to every
participant, which finds the one whose loss on its own rows is least, trains that one, and replies with the
change and with which model it was; each model moves by the mean change of those who chose it. A device uses
the model that does best on its own training rows.

Deviations: changes are weighted by samples (the authors' clients hold equally many), and any server optimiser
can take them, one state a model. Models start from different seeds, as in the authors' code; `separation`
below 1 starts them nearer to the first one. Which of several starts is best (the paper's restarts) is for
several seeds of the experiment to tell. Layers that all models share (the paper's, for text and FEMNIST) are
left out. Deadlines and over-commitment can be had. At the cloud, which has no rows to choose by, all models
are served side by side.
"""

from typing import Final

FIDELITY: Final = "authors' code"

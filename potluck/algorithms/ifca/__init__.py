"""IFCA (Ghosh, Chung, Yin, Ramchandran 2020, An Efficient Framework for Clustered Federated Learning).

Devices belong to hidden groups, each of which needs a model of its own. The server sends all models to every
participant, which finds the one whose loss on its own rows is least, trains that one, and replies with the
change and with which model it was; each model moves by the mean change of those who chose it. A device uses
the model that does best on its own training rows.

Models start from different seeds. Before training, as in the authors' CIFAR code, participants are asked
which of the first models has the least loss on their rows; all models are drawn anew, and others asked,
until each one is the choice of a share `least` of them: the authors' 0.35 with two models and 0.1 with
four. Their MNIST code uses the first draw unseen (`restarts = 0`), their FEMNIST code trains models on
random parts first (not here). A model that nobody chooses later stays as it was, as in all of their code.

Deviations: the authors draw without end; here at most `restarts` times, then the most even draw is kept and
`uneven` is noted. Asking takes time and traffic, but no round. So few participants that the share can't be
had need only be as even as they can, and at least as many are asked as there are models; `least` for other
numbers of models is ours (0.4 / models). Where devices hold few rows, first choices are mostly noise and
pass easily: a larger `least` helps then. Changes are weighted by samples (the authors' clients hold equally
many), and any server optimiser can take them, one state a model. `separation` below 1 starts models nearer
to the first one. The rate isn't decayed (the authors' CIFAR code: by 0.99 a round). Layers that all models
share (the paper's, for text and FEMNIST) are left out. Deadlines and over-commitment can be had. At the
cloud, which has no rows to choose by, all models are served side by side.
"""

from typing import Final

FIDELITY: Final = "authors' code"

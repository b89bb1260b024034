"""q-FedAvg (Li, Sanjabi, Beirami, Smith 2020, Fair Resource Allocation in Federated Learning).

The mean over devices may hide that some are served badly. q-FedAvg minimises the sum of F_k^(q+1), so that
devices on which the model does badly weigh more, the more the larger q; its step is as long as is safe for
that steeper objective, which saves tuning a rate for every q. With q = 0 it is the plain mean of updates.

The paper tunes q for every data set, from 0.001 to 5: the larger, the slower is everybody. Here it is 0.05
unless told: of those tried on validation rows, the largest that kept within 3 points of FedAvg's mean.

Deviations: devices are drawn uniformly (the paper draws by samples), so every device counts alike. F_k, which
devices measure on all their rows in one more forward pass, travels with the metrics and adds no bytes. The
authors' code adds 1e-10 to F_k; here that is its least value. Deadlines and over-commitment can be had.
"""

from typing import Final

FIDELITY: Final = "authors' code"

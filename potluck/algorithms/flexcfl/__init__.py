"""FlexCFL / FedGroup (Duan et al. 2021, Flexible Clustered Federated Learning for Client-Level Data
Distribution Shift; FedGroup: Efficient Federated Learning via Decomposed Similarity-Based Clustering).

Before any training, some devices train the initial model a little. Their updates are compared not with each
other but with the few directions that hold most of them (the cosines are the embedding EDC), and k-means on
these cosines gives the groups. A newcomer trains the initial model as well and joins the group whose
optimisation direction, the mean update of those it was founded by, is nearest by (1 - cos)/2. A member whose
labels have changed is sorted again.

Deviations: directions are exact, from the Gram matrix (the authors' code: randomised SVD). Groups train in
rounds of their own and share `clients` in proportion to members; newcomers are sorted beside them, by at most
half of `clients`, and train with their group later rather than in the same round; all of it counts as rounds.
With `group_rate`, a group is mixed with what the others are at the end of its own round. Participants look at
their labels after a round (the authors' code: everybody, before each), label by label (the code compares
sorted counts, which don't show that one label was exchanged for another); the threshold is the code's.
"""

from typing import Final

FIDELITY: Final = "authors' code"

"""FedEdge (Wang, He, Chen, Jin, Yang 2023, FedEdge: Accelerating Edge-Assisted Federated Learning).

Edges don't idle while the cloud averages and its model travels: they hold rounds with their devices, as many
as fit. When the global model comes, an edge finishes its round, mixes the two models, answers and goes on.

Deviations of the defaults; `mode = "published"` has the paper's. An edge carries what it learnt since its
last answer over to the global model: mixed half and half (`mix = "half"`), half of it would be lost. Nobody
is left out; the paper's edges leave out updates that stand out (`robust = "AdaptiveKrum"`), which among
honest devices are those of people unlike the others. The view `edge` is the edge's model before mixing, which
knows its own devices best (`edge_view = "mixed"`: after it).

The paper's text was not at hand: its rules are those that Maverick's paper tells of it. As in its pseudocode
the mixed model is what the cloud is sent (so that global models are damped); `upload_before_mix` sends the
edge's own, as its text says. The cloud gives each edge one vote. A local round is one training of the edge's
devices; `local_rounds` counts all of them between two answers, the first one too. At least one is held, so an
edge without anybody online keeps the cloud waiting; the others rest after 1,000 rounds without a word. The
first answer has nothing to be mixed with. What Adaptive-Krum does is Potluck's own reading. Devices are
weighted by samples within their edge.

`inner` is what edges train by: fedprox, moon or fedpvr within FedEdge are that paper's baselines. Their
devices are drawn to the global model (`anchor`), as it says, which they are then sent as well; with "edge" it
is the edge's, which training begins with. Control variates of fedpvr are each edge's own, and stay there.
Views: as in hierfl.
"""

from collections.abc import Mapping
from typing import Final

FIDELITY: Final = "paper of Maverick"
PUBLISHED: Final[Mapping[str, object]] = {"mix": "half", "edge_view": "mixed", "robust": "AdaptiveKrum"}

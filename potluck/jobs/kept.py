"""What a device kept of its own training, put to use."""

from potluck.core.codec import value
from potluck.core.job import Batch
from potluck.core.trees import Params, Tree
from potluck.jobs.objective import Objective


@value
class Kept(Objective):
    """The device's own model, as it last trained it; the one that is sent, if it never did.

    An objective that keeps a model keeps it as `personal`: all parameters, or those that are the device's own
    (a head, say). The rest is as sent.
    """

    def blank(self, sent: Tree) -> Tree:
        return {"personal": sent["params"]}

    def start(self, sent: Tree, keep: Tree, own: Batch | None) -> Params:
        return {**sent["params"], **keep["personal"]}


def apply_update(sent: Tree, delta: Params) -> Params:
    """The whole model as it came out of training that began with what was sent."""
    params: Params = sent["params"]
    return {name: p + delta[name] if name in delta else p for name, p in params.items()}

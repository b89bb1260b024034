"""Local training: one job whose parts are fields, so that a new objective is one small class."""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Literal, Self

import numpy as np
from torch import Tensor

from potluck.core.codec import value
from potluck.core.columns import Costs, Draws, Places, does_together
from potluck.core.errors import ConfigError, require
from potluck.core.job import Batch, Cost, Local, ModelSpec, Net, Nets, Rows, Trace
from potluck.core.trees import Params, Tree, sub
from potluck.fleet import TRAINING_FACTOR
from potluck.jobs.objective import CrossEntropy, Objective
from potluck.jobs.optim import SGD, Adam
from potluck.jobs.privacy import Private
from potluck.jobs.sampling import Asked, CountsRows, ManySampler, Sampler, Shuffled
from potluck.models.footprint import training_bytes


@value
class Train:
    """Train the model that was sent on the device's rows and reply with the change."""

    model: ModelSpec = ModelSpec()
    objective: Objective = CrossEntropy()
    sampler: Sampler = Shuffled()
    optim: SGD | Adam = SGD()
    clip: float | None = None  # the longest that a step's gradient may be (L2 norm); None: any length
    batch: int = 10
    epochs: int = 1
    steps: int | None = None  # a number of batches instead of epochs
    part: Literal["all", "head"] = "all"  # what is trained; the rest stays as it was sent
    privacy: Private | None = None  # clips the change and adds noise before it leaves the device
    needs: float = 0.0  # bytes of memory, where that is more than training takes: a teacher's

    def __post_init__(self) -> None:
        fix = "must be above 0, such as 1.0; leave it out for gradients of any length"
        require(self.clip is None or 0 < self.clip < float("inf"), "train.clip", self.clip, fix)
        if self.privacy is not None and not self.objective.tells_change_only():
            kind = type(self.objective).__name__
            raise ConfigError(
                f"train.privacy = {self.privacy!r}: covers the change of the model alone, but with this "
                f"algorithm ({kind}) devices also tell what doesn't follow from it; leave train.privacy out, "
                "or use an algorithm such as fedavg"
            )

    def scale_rate(self, rate: float) -> Self:
        """The same at another learning rate; `rate` is a factor."""
        return replace(self, optim=replace(self.optim, lr=self.optim.lr * rate))

    @property
    def looks(self) -> bool:
        return self.objective.looks

    @property
    def whole(self) -> bool:
        return self.objective.whole

    def shape(self) -> Hashable:
        optim = replace(self.optim, lr=0.0)
        kind = type(self), self.model, self.objective, type(self.sampler), optim
        return *kind, self.clip, self.batch, self.part, self.privacy

    def cost(self, at: Local) -> Cost:
        net = at.models[self.model]
        passes = self.sampler.passes(at, self.batch, self.epochs, self.steps)
        ops = TRAINING_FACTOR * passes * net.ops + self.objective.ops(net, at, passes)
        trained = self._pick_trained(net, self.objective.form(at.inbox))
        memory = max(self.needs, training_bytes(net, self.optim, self.batch))
        sends = {"delta": trained, **self.objective.sends(trained)}
        still = self.privacy is not None or not (self.epochs if self.steps is None else self.steps)
        names = () if still else self.objective.tells(at.inbox)
        return Cost(ops, sends, memory=memory, weight=self.sampler.most(at, self.batch), metrics=names)

    def draw(self, at: Local) -> Rows:
        return self.sampler.draw(at, self.batch, self.epochs, self.steps)

    def cost_all(self, places: Places) -> Costs:
        """`cost` at many places that were sent the same."""
        net, sampler, objective = places.models[self.model], self.sampler, self.objective
        if isinstance(sampler, CountsRows) and does_together(type(sampler), "count_all", "passes", "most"):
            passes, most = sampler.count_all(places.sizes, self.batch, self.epochs, self.steps)
        else:
            passes = [sampler.passes(at, self.batch, self.epochs, self.steps) for at in places]
            most = [sampler.most(at, self.batch) for at in places]
        ops = [TRAINING_FACTOR * count * net.ops + 0.0 for count in passes]
        if type(objective).ops is not Objective.ops:
            beside = (objective.ops(net, at, n) for at, n in zip(places, passes, strict=True))
            ops = [TRAINING_FACTOR * n * net.ops + more for n, more in zip(passes, beside, strict=True)]
        same = replace(self.cost(places[0]), ops=0.0, weight=0.0)
        return Costs(same, np.array(ops), np.array(most))

    @staticmethod
    def draw_all(jobs: "Sequence[Train]", places: Places) -> Draws:
        """`draw` of each job at its place; at once where their samplers can. They have the same batch."""
        sampler = jobs[0].sampler
        alike = all(type(job.sampler) is type(sampler) for job in jobs)
        together = does_together(type(sampler), "draw_all", "draw")
        if not (alike and together and isinstance(sampler, ManySampler)):
            return Draws.of([job.draw(at) for job, at in zip(jobs, places, strict=True)])
        epochs, steps = [job.epochs for job in jobs], [job.steps for job in jobs]
        return sampler.draw_all(Asked([job.sampler for job in jobs], places, jobs[0].batch, epochs, steps))

    def blank(self, sent: Tree) -> Tree:
        return self.objective.blank(sent)

    def look(self, models: Nets, net: Net, sent: Tree, keep: Tree, batch: Batch) -> Tree:
        return self.objective.look(models, net, sent, keep, batch)

    def begin(self, net: Net, sent: Tree, keep: Tree, own: Batch | None) -> tuple[Params, Tree]:
        whole = self.objective.start(sent, keep, own)
        trained = self._pick_trained(net, whole)
        frozen = {k: v for k, v in whole.items() if k not in trained}
        return trained, (frozen, trained, self.objective.hold(sent, keep, own))

    def loss(self, net: Net, params: Params, batch: Batch, held: Tree) -> tuple[Tensor, dict[str, Tensor]]:
        return self.objective.loss(net, {**held[0], **params}, batch, held[2])

    def review(self, net: Net, params: Params, own: Batch, held: Tree) -> dict[str, Tensor]:
        return self.objective.review(net, {**held[0], **params}, own, held[2])

    def finish(
        self, params: Params, sent: Tree, keep: Tree, held: Tree, trace: Trace
    ) -> tuple[Tree, Tree, dict[str, Tensor]]:
        delta = sub(params, held[1])
        if self.privacy is not None:
            assert trace.key is not None, "noise needs a key"
            delta = self.privacy.privatise(delta, trace.key)  # all that leaves follows from this
        more, kept = self.objective.finish(delta, sent, keep, held[2], trace)
        return {"delta": delta, **more}, kept, trace.means if self.privacy is None else {}

    def unpack(self, body: Tree, sent: Tree, models: Nets) -> Tree:
        """What came back, as the aggregator reads it: unpacked where the objective packs."""
        if not self.objective.packs:
            return body
        trained = self._pick_trained(models[self.model], self.objective.form(sent))
        return self.objective.unpack(body, sent, trained)

    def score(self, net: Net, params: Params, batch: Batch, held: Tree) -> dict[str, Tensor]:
        return self.objective.score(net, {**held[0], **params}, batch, held[2])

    def _pick_trained(self, net: Net, params: Params) -> Params:
        return params if self.part == "all" else {k: params[k] for k in net.head_names}


def use_model(model: ModelSpec, objective: Objective = CrossEntropy()) -> Train:
    """Use a `model` as it is: training of no steps, so that it is scored, by `objective`, like any other."""
    return Train(model, objective, epochs=0)


def fine_tune(local: Train, epochs: int = 1, part: Literal["all", "head"] = "all") -> Train:
    """The job of a device that adapts a model to its own rows before it uses it.

    `local`: how it trains else. `epochs`: passes over its rows. `part`: all layers, or the last one alone.
    """
    # What stays on the device needs no noise.
    return replace(local, objective=CrossEntropy(), epochs=epochs, steps=None, part=part, privacy=None)

"""How good the served models are, on every panel device's own test rows and on the global test set.

Settings are chosen on devices' validation rows instead; then no test row is touched, of whomever.
Evaluation takes no virtual time, has a random stream of its own, reads memories without changing them, and
what it computes is thrown away but for the scores. Means over devices leave attackers out; what each of these
is served is scored and recorded like everybody's. With the layer `prior` each view is also scored with
devices' own priors (`simulate.prior_views`), and these views come first.
"""

import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potluck.core import keys
from potluck.core.errors import DivergedError, require
from potluck.core.job import trains
from potluck.core.messages import Choice, Node, Task
from potluck.core.trees import finite
from potluck.data import Partition, Shift, order_of_stream, read_shift
from potluck.engine.host import Host
from potluck.engine.local import Home, look_up
from potluck.engine.offers import Chosen, Settled, find_offers, settle
from potluck.engine.point import Point
from potluck.engine.schedule import EvaluateAt
from potluck.engine.seeds import EVALUATION, seed_choice, seed_score
from potluck.execute.plan import Executor
from potluck.execute.reference import Item
from potluck.federation import Federation
from potluck.simulate.global_test import GlobalTest, choose_models, identify_shared, set_test
from potluck.simulate.prior_views import weigh_view
from potluck.simulate.served_scores import Scores, list_answers, score


class Offer(NamedTuple):
    """What a node would use, for one view."""

    node: Node
    view: str
    task: Task
    chosen: Chosen | None  # where the device chose between several


class Use(NamedTuple):
    """What a device uses in the view that a run is judged by, and the rows that it is tested on."""

    model: Hashable | None  # equal for all who use the same one; None: one of its own
    name: str | None  # the cloud's, if it serves the model to itself
    nbytes: int  # of its parameters
    rows: NDArray[np.int64]


class Line(NamedTuple):
    """A fact to record."""

    metric: str
    value: float | list[int] | Mapping[str, float | str] | Mapping[str, float | list[float]]
    node: Node | None = None
    view: str | None = None


class Evaluation(NamedTuple):
    """What there is to record, and the headline view's mean accuracy."""

    lines: list[Line]
    accuracy: float | None


class Evaluator:
    """Looks at what points would serve; it sees all of a federation, and changes nothing."""

    def __init__(
        self,
        federation: Federation,
        host: Host,
        points: Mapping[Node, Point],
        home: Home,
        executor: Executor,
        often: EvaluateAt,
    ) -> None:
        self.federation, self.host, self.points, self.home = federation, host, points, home
        self.executor, self.often = executor, often
        self.panel = choose_panel(federation.devices, often.panel, host.seed)

    def find_served(self, node: Node, serial: int) -> dict[str, Settled]:
        """What a node would use now, by view; `serial`: of the evaluation."""
        found = {}
        for view, offer in find_offers(self.host, self.points, node, serial).items():
            if isinstance(offer, Choice):
                seed, keeper = seed_choice(self.host.seed, node), self._find_keeper(node, offer.slot)
                at = look_up(self.home, node, offer.send, offer.slot, seed, keeper=keeper)
                found[view] = settle(offer, at)
            else:
                found[view] = Settled(offer)
        return found

    def evaluate(self, serial: int) -> Evaluation:
        """Score what every panel device would use now, and what the cloud serves itself."""
        root, now = self.host.root, self.host.now
        nodes = self.panel.tolist()
        lines = self._tell_truth(nodes) if not serial else []
        offers = self._collect([*nodes, root] if self.often.on == "test" else nodes, serial)
        _require_sound(offers, now)
        lines += [Line("chosen", o.chosen, o.node, o.view) for o in offers if o.chosen is not None]
        partition = self.federation.find_partition(now)
        items = self._place(offers, serial, partition)
        scores = score(items, self.executor)
        (weighed,), fits = self._weigh([o for o in offers if o.node != root], serial, [partition])
        lines += fits
        honest, by_view = self._find_honest(), dict[str, list[float]]()
        plain = [(node, view, found) for (node, view, *_), found in zip(offers, scores, strict=True)]
        for node, view, found in [*weighed, *plain]:
            prefix, whose = ("global_", None) if node == root else ("", node)
            lines += [Line(prefix + name, n, whose, view) for name, n in found.items() if name != "rows"]
            if node in honest and "accuracy" in found:
                by_view.setdefault(view, []).append(found["accuracy"])
        for view, accuracies in by_view.items():
            spread = summarise(np.array(accuracies))
            lines += [Line(f"accuracy_{name}", number, view=view) for name, number in spread.items()]
        lines += self._test_globally(offers, items, scores)
        headline = next(iter(by_view.values()), None)
        return Evaluation(lines, None if headline is None else float(np.mean(headline)))

    def evaluate_shifts(self, last: int) -> list[Line]:
        """After the last evaluation: the same on every device's rows at other shifts.

        `last`: its serial, so that what trains first comes to the same model.
        """
        if not self.often.shifts:
            return []
        lines, honest = list[Line](), self._find_honest()
        shifts = [read_shift(each) for each in self.often.shifts]
        panel = self._collect(self.panel.tolist() if self.often.weighed else honest, last)
        offers = [offer for offer in panel if offer.node in honest]
        partitions = [self.federation.find_shifts(self.host.now)[shift] for shift in shifts]
        everywhere, _ = self._weigh(panel, last, partitions)
        for shift, partition, weighed in zip(shifts, partitions, everywhere, strict=True):
            by_view: dict[str, list[Scores]] = {}
            scores = score(self._place(offers, last, partition), self.executor)
            plain = [(o.node, o.view, found) for o, found in zip(offers, scores, strict=True)]
            for node, view, found in [*weighed, *plain]:
                if "accuracy" in found and node in honest:
                    by_view.setdefault(view, []).append(found)
            for view, found_here in by_view.items():
                told = {**_name_shift(shift), **_average(found_here)}
                lines.append(Line("accuracy_shifted", told, view=view))
        return lines

    def find_uses(self, last: int) -> dict[Node, Use]:
        """Of the panel's devices that don't attack, as at the last evaluation, whose serial this is."""
        partition = self.federation.find_partition(self.host.now)
        cloud = self._collect([self.host.root], last)
        named = {
            identify_shared(item): offer.view
            for offer, item in zip(cloud, self._place(cloud, last, partition), strict=True)
        }
        offers = {o.node: o for o in reversed(self._collect(self._find_honest(), last))}  # of each its first
        uses = {}
        for item in self._place(list(offers.values()), last, partition):
            model, at, job = identify_shared(item), item.at, item.job
            rows = partition.rows(at.node, self.often.on)
            uses[at.node] = Use(model, named.get(model), at.models[job.model].nbytes, rows)
        return uses

    def _collect(self, nodes: Iterable[Node], serial: int) -> list[Offer]:
        return [
            Offer(node, view, *settled)
            for node in nodes
            for view, settled in self.find_served(node, serial).items()
        ]

    def _place(self, offers: Sequence[Offer], serial: int, partition: Partition) -> list[Item]:
        """On the rows that these nodes hold, and the cloud on the global test set."""
        items = []
        for node, _, task, _ in offers:
            assert trains(task.job), f"{type(task.job).__name__} can't be scored"
            if node == self.host.root:
                test = self.federation.test_rows(self.host.now)
            elif task.job.whole:
                test = order_of_stream(partition, node, self.often.on)
            else:
                test = partition.rows(node, self.often.on)
            seed = seed_score(self.host.seed, serial, node)
            items.append(Item(task.job, look_up(self.home, node, task.send, task.slot, seed, test)))
        return items

    def _weigh(
        self, offers: Sequence[Offer], serial: int, tests: Sequence[Partition]
    ) -> tuple[list[list[tuple[Node, str, Scores]]], list[Line]]:
        """With priors: scores on what devices are tested on in each partition, and what was fitted."""
        if self.often.weighed is None:
            return [[] for _ in tests], []
        known, items = self.federation.find_partition(self.host.now), self._place(offers, serial, tests[0])
        stretches = []
        for offer in offers:
            met = [order_of_stream(p, offer.node, self.often.on) for p in tests]
            stretches.append([known.rows(offer.node, "validation"), *met])
        told = list_answers(items, stretches, self.executor)
        found: list[list[tuple[Node, str, Scores]]] = [[] for _ in tests]
        lines = []
        views = dict.fromkeys(offer.view for offer in offers)
        for new, view in self.often.weighed.name_views([*views]).items():
            mine = [i for i, offer in enumerate(offers) if offer.view == view]
            apart = self.often.on == "validation"
            weighed = weigh_view([told[i] for i in mine], self.often.weighed.form, apart)
            lines += [Line("prior", facts, view=new) for facts in weighed.fits]
            for out, scores in zip(found, weighed.scores, strict=True):
                out += [(offers[i].node, new, s) for i, s in zip(mine, scores, strict=True)]
        return found, lines

    def _test_globally(
        self, offers: Sequence[Offer], items: Sequence[Item], scores: Sequence[Scores]
    ) -> list[Line]:
        """The models that devices use, on the global test set; what the cloud serves itself is known."""
        if self.often.on != "test":
            return []
        honest, devices = self._find_honest(), dict[str, list[Item]]()
        cloud, known = dict[str, Item](), dict[Hashable, Scores]()
        for (node, view, *_), item, found in zip(offers, items, scores, strict=True):
            if node in honest:
                devices.setdefault(view, []).append(item)
            elif node == self.host.root:
                cloud[view] = item
                known[identify_shared(item)] = found
        chosen = choose_models(devices, cloud) if devices else None
        if chosen is None:
            return []
        rows = self.federation.test_rows(self.host.now)
        new = {name: set_test(item, rows) for name, item in chosen.models.items() if name not in known}
        known |= dict(zip(new, score(list(new.values()), self.executor), strict=True))
        if "accuracy" not in known[chosen.uses[0]]:
            return []  # there is no such row
        mean = statistics.mean(known[name]["accuracy"] for name in chosen.uses)  # exact, if it is one model
        told = {"accuracy": mean, "models": len(chosen.models), "used": chosen.used}
        return [Line("global_test", told, view=chosen.view), *self._test_backdoor(chosen)]

    def _test_backdoor(self, chosen: GlobalTest) -> list[Line]:
        """How often the same models take a trigger for its class, where attackers have put one in."""
        rows = self.federation.triggered_rows(self.host.now)
        if rows is None or not len(rows):
            return []
        scores = score([set_test(item, rows) for item in chosen.models.values()], self.executor)
        share = dict(zip(chosen.models, (found["accuracy"] for found in scores), strict=True))
        return [
            Line("backdoor_success", statistics.mean(share[name] for name in chosen.uses), view=chosen.view)
        ]

    def _find_keeper(self, node: Node, slot: Hashable) -> Node:
        """Who remembers for a node: itself, or the nearest above that has such a memory."""
        above = () if node == self.host.root else self.host.topology.path(node)
        has = (n for n in (node, *above) if self.home.memories.get(n, slot) is not None)
        return next(has, node)

    def _find_honest(self) -> dict[Node, None]:
        """The panel's devices that don't attack, in order: means are over these alone."""
        panel, attackers = self.panel, self.federation.fleet.attackers
        honest = panel if attackers is None else panel[~attackers[panel]]
        require(len(honest) > 0, "evaluate.panel", len(panel), "all of these devices attack: give more")
        return dict.fromkeys(honest.tolist())

    def _tell_truth(self, nodes: list[Node]) -> list[Line]:
        """What nobody in the federation is told, for those who judge: once and first of all."""
        fleet, flips = self.federation.fleet, self.federation.flips
        hidden = nodes if (fleet.group >= 0).any() else []
        lines = [Line("hidden_group", int(fleet.group[node]), node) for node in hidden]
        for name, who in (("flippers", flips), ("attackers", fleet.attackers)):
            if who is not None:
                lines.append(Line(name, np.flatnonzero(who).tolist()))
        return lines


def choose_panel(devices: int, size: int, seed: int) -> NDArray[np.int64]:
    """The devices that are evaluated: all, or a fixed choice when there are more than `size`."""
    if devices <= size:
        return np.arange(devices)
    return np.sort(keys.generator(keys.derive(seed, EVALUATION)).choice(devices, size, replace=False))


def summarise(accuracies: NDArray[np.float64]) -> dict[str, float]:
    """Mean and variance over devices, and the means of the worst and of the best tenth."""
    ordered = np.sort(accuracies)
    tenth = max(1, round(len(ordered) / 10))
    return {
        "mean": float(ordered.mean()),
        "worst10": float(ordered[:tenth].mean()),
        "best10": float(ordered[-tenth:].mean()),
        "variance": float(ordered.var()),
    }


def _require_sound(offers: Iterable[Offer], now: float) -> None:
    """Refuse models that can't be used: loops see to what they merge, but not every algorithm is a loop's."""
    models = {
        id(params): (o.view, params) for o in offers if (params := o.task.send.get("params")) is not None
    }
    for view, params in models.values():
        if not finite(params):
            raise DivergedError(
                f"at {now:.0f} virtual seconds the model that is served as {view!r} has numbers that are "
                "NaN or infinite: lower lr or server_lr; a rule's merge is undone before it comes to this, "
                "if it makes a new state instead of changing the one it is given"
            )


def _name_shift(shift: Shift) -> dict[str, float | str]:
    return {"shift": shift.share} | ({} if shift.kind == "unseen" else {"kind": shift.kind})


def _average(scores: list[Scores]) -> dict[str, float]:
    """Accuracy over devices, and the mean of whatever else is scored."""
    columns: dict[str, list[float]] = {}
    for found in scores:
        for name, number in found.items():
            columns.setdefault(name, []).append(number)
    whole = summarise(np.array(columns["accuracy"]))
    means = {name: float(np.mean(c)) for name, c in columns.items() if name not in ("accuracy", "rows")}
    return {"mean": whole["mean"], "worst10": whole["worst10"], **means}

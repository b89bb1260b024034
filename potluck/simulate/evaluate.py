"""How good the served models are, on every panel device's own test rows and on the global test set.

Settings are chosen on devices' validation rows instead; then no test row is touched, of whomever.
Evaluation takes no virtual time, has a random stream of its own, reads memories without changing them, and
what it computes is thrown away but for the scores. Means over devices leave attackers out; what each of these
is served is scored and recorded like everybody's.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from potluck.core import keys
from potluck.core.errors import require
from potluck.core.job import Local
from potluck.core.messages import Choice, Node, Task
from potluck.data import Partition
from potluck.engine.context import SimContext
from potluck.execute.reference import SCORING_BATCH, Item, identify_model, run_alone, score_together

if TYPE_CHECKING:
    from potluck.simulate.simulation import Simulation

STREAM = -7  # keeps evaluation's randomness apart from the run's


def panel(devices: int, size: int, seed: int) -> NDArray[np.int64]:
    """The devices that are evaluated: all, or a fixed choice when there are more than `size`."""
    if devices <= size:
        return np.arange(devices)
    return np.sort(keys.generator(keys.derive(seed, STREAM)).choice(devices, size, replace=False))


def evaluate(sim: "Simulation") -> float | None:
    """Score and record what every panel device would use now; the headline view's mean accuracy."""
    root = sim.root
    nodes = [int(n) for n in sim.panel]
    if not sim.evaluations:
        _tell_truth(sim, nodes)
    tasks: list[tuple[Node, str, Task]] = []
    for node in [*nodes, root] if sim.often.on == "test" else nodes:
        for view, offered in _offered(sim, node, sim.evaluations).items():
            task, why = _settled(sim, node, offered)
            tasks.append((node, view, task))
            if why is not None:
                sim.record("chosen", why, node=node, view=view)
    scores = _scores(sim, tasks, sim.evaluations, sim.federation.holding(sim.now))
    by_view: dict[str, list[float]] = {}
    honest = _honest(sim)
    for (node, view, _), score in zip(tasks, scores, strict=True):
        prefix, whose = ("global_", None) if node == root else ("", node)
        for name, number in score.items():
            if name != "rows":
                sim.record(prefix + name, number, node=whose, view=view)
        if node in honest and "accuracy" in score:
            by_view.setdefault(view, []).append(score["accuracy"])
    for view, accuracies in by_view.items():
        for name, number in spread(np.array(accuracies)).items():
            sim.record(f"accuracy_{name}", number, view=view)
    sim.accounts.record(sim.logs, sim.round, sim.now)
    return float(np.mean(next(iter(by_view.values())))) if by_view else None


def evaluate_shifts(sim: "Simulation") -> None:
    """After the last evaluation: the same on every device's test rows at other shares of shift."""
    if sim.often.on != "test":
        return
    last = sim.evaluations - 1  # its random stream, so that what trains first comes to the same model
    tasks = [
        (node, view, _settled(sim, node, offered)[0])
        for node in (_honest(sim) if sim.often.shifts else ())
        for view, offered in _offered(sim, node, last).items()
    ]
    for share in sim.often.shifts:
        by_view: dict[str, list[dict[str, float]]] = {}
        scores = _scores(sim, tasks, last, sim.federation.shifted(sim.now)[share])
        for (_, view, _), score in zip(tasks, scores, strict=True):
            if "accuracy" in score:
                by_view.setdefault(view, []).append(score)
        for view, found in by_view.items():
            sim.record("accuracy_shifted", {"shift": share, **_overall(found)}, view=view)


def _overall(scores: list[dict[str, float]]) -> dict[str, float]:
    """Accuracy over devices, and the mean of whatever else is scored."""
    columns: dict[str, list[float]] = {}
    for score in scores:
        for name, number in score.items():
            columns.setdefault(name, []).append(number)
    whole = spread(np.array(columns["accuracy"]))
    means = {name: float(np.mean(c)) for name, c in columns.items() if name not in ("accuracy", "rows")}
    return {"mean": whole["mean"], "worst10": whole["worst10"], **means}


def _honest(sim: "Simulation") -> dict[Node, None]:
    """The panel's devices that don't attack, in order: means are over these alone."""
    panel, attackers = sim.panel, sim.federation.fleet.attackers
    honest = panel if attackers is None else panel[~attackers[panel]]
    require(len(honest) > 0, "evaluate.panel", len(panel), "all of these devices attack: give more")
    return dict.fromkeys(honest.tolist())


def _tell_truth(sim: "Simulation", nodes: list[Node]) -> None:
    """What nobody in the federation is told, for those who judge: once and first of all."""
    group = sim.federation.fleet.group
    if (group >= 0).any():
        for node in nodes:
            sim.record("hidden_group", int(group[node]), node=node)
    if sim.federation.flips is not None:
        sim.record("flippers", np.flatnonzero(sim.federation.flips).tolist())
    if sim.federation.fleet.attackers is not None:
        sim.record("attackers", np.flatnonzero(sim.federation.fleet.attackers).tolist())


def spread(accuracies: NDArray[np.float64]) -> dict[str, float]:
    """Mean and variance over devices, and the means of the worst and of the best tenth."""
    ordered = np.sort(accuracies)
    tenth = max(1, round(len(ordered) / 10))
    return {
        "mean": float(ordered.mean()),
        "worst10": float(ordered[:tenth].mean()),
        "best10": float(ordered[-tenth:].mean()),
        "variance": float(ordered.var()),
    }


def served(sim: "Simulation", node: Node) -> dict[str, Task]:
    """What a node would use now, by view: its own aggregator's views first, the cloud's word last."""
    views = _offered(sim, node, sim.evaluations)
    return {view: _settled(sim, node, offered)[0] for view, offered in views.items()}


def _offered(sim: "Simulation", node: Node, serial: int) -> dict[str, Task | Choice]:
    views: dict[str, Task | Choice] = {}
    for aggregator in (node,) if node == sim.root else sim.topology.path(node):
        ctx = SimContext(sim, aggregator, (STREAM, serial, node))
        views |= sim.algorithms[aggregator].serve(sim.states[aggregator], node, ctx)
    return views


def _settled(
    sim: "Simulation", node: Node, offered: Task | Choice
) -> tuple[Task, dict[str, float | str] | None]:
    """The task itself; or the one that the device would choose, and what there is to record of that."""
    if isinstance(offered, Task):
        return offered, None
    keep, seed = sim.devices.keeps.get(node, offered.slot), keys.derive(sim.seed, STREAM, -1, node)
    at = Local(
        node, sim.devices.rows(node), offered.send, keep, seed, sim.federation.models, sim.federation.pool
    )
    result = run_alone(offered.job, at)
    return offered.tasks[result.body], {"name": result.body, **result.metrics}


def _scores(
    sim: "Simulation", tasks: list[tuple[Node, str, Task]], serial: int, held: Partition
) -> list[dict[str, float]]:
    """What tasks come to on the rows that these nodes hold; `serial`: of the evaluation."""
    federation, items = sim.federation, []
    for node, _, task in tasks:
        if node == sim.root:
            test = federation.test_rows(sim.now)
        else:
            test = held.rows(node, sim.often.on)
        seed = keys.derive(sim.seed, STREAM, serial, node)
        keep = sim.devices.keeps.get(node, task.slot)
        at = Local(
            node, sim.devices.rows(node), task.send, keep, seed, federation.models, federation.pool, test
        )
        items.append(Item(task.job, at))  # type: ignore[arg-type]
    out: list[dict[str, float]] = [{} for _ in items]
    still: dict[object, list[int]] = {}  # models used as they are, by the tensors that they share
    alone: dict[object, list[int]] = {}  # models of their own, or trained before they are used: many at once
    for i, item in enumerate(items):
        trains = len(item.job.draw(item.at).index) > 0
        group, name = (alone, item.job.shape()) if trains else (still, identify_model(item))
        group.setdefault(name, []).append(i)
    for places in still.values():
        first = items[places[0]]
        if len(places) == 1 and first.at.test is not None and len(first.at.test) <= SCORING_BATCH:
            alone.setdefault(first.job.shape(), []).append(places[0])
            continue
        for i, score in zip(places, score_together([items[i] for i in places]), strict=True):
            out[i] = score
    for places in alone.values():
        results = sim.executor.run([items[i] for i in places])
        for i, result in zip(places, results, strict=True):
            out[i] = dict(result.metrics)
    return out

"""Does advice hold? Random federations are measured, advised on and piloted, and the two are compared.

Federations are of one kind (hidden groups, unseen classes, edges, users, tight memory, nothing), of two at
once, or near a threshold. What they are made of is never told to the rules. A pilot is short, on one seed and
at one learning rate, so it can be wrong as well as the advice: what is printed is how often they agree.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from potluck.advice.measure import measure_file
from potluck.advice.pilot import run_pilot
from potluck.advice.recommendation import judge
from potluck.experiment import Experiment
from potluck.fleet import fedrac40

Rng = np.random.Generator
Tables = dict[str, dict[str, Any]]

FAR = {"edge": {"latency": [0.005, 0.02]}, "cloud": {"latency": [0.075, 0.15]}}  # seconds; Maverick's


def groups(rng: Rng) -> Tables:
    """Devices that turn images or name classes otherwise, by much."""
    kind = ("rotation", "permutation")[rng.integers(2)]
    return {"data": {"groups": {"kind": kind, "count": int(rng.integers(2, 5))}}}


def shift(rng: Rng) -> Tables:
    """Devices that are tested on classes which they don't train on."""
    spread = {"partition": "dirichlet", "alpha": float(rng.uniform(0.08, 0.3))}
    return {"data": {**spread, "shift": float(rng.uniform(0.3, 1.0)), "server": 0.1}}


def edges(rng: Rng) -> Tables:
    """Edges near their devices, some of which are slow."""
    slow = {"share": float(rng.uniform(0.05, 0.2)), "slower": float(rng.uniform(5, 15))}
    fleet = {"edges": int(rng.integers(3, 7)), "links": FAR, "tiers": {"edge": {"latency": 0.1}}}
    return {
        "data": {"partition": "dirichlet", "alpha": float(rng.uniform(0.15, 0.5))},
        "fleet": {**fleet, "stragglers": slow},
    }


def users(rng: Rng) -> Tables:
    """People with several devices, which differ in labels and speed; training takes a minute or so."""
    people = {"partition": "user_devices", "users": int(rng.integers(8, 13)), "clients": None}
    slow = float(rng.uniform(1e4, 4e4))  # ms; the model is small, and stands for a larger one
    return {
        "data": {**people, "alpha": float(rng.uniform(0.1, 0.4))},
        "fleet": {"source": "mobile", "link_spread": 1.5, "compute": slow},
    }


def memory(rng: Rng) -> Tables:
    """Fed-RAC's 40 phones, some of which have less memory than training takes."""
    phones, need = fedrac40(40), 191_120  # bytes, of the default perceptron on digits at batches of 10
    scale = need / float(np.quantile(phones.memory, rng.uniform(0.3, 0.6))) * 1.01
    columns = ("compute", "up", "down", "latency")
    rows = [
        {**{c: float(getattr(phones, c)[i]) for c in columns}, "memory": float(phones.memory[i]) * scale}
        for i in range(len(phones))
    ]
    return {"fleet": {"source": "table", "rows": rows}}


def equal(rng: Rng) -> Tables:
    """Nothing to mend."""
    return {}


def nearly(rng: Rng) -> Tables:
    """Near a threshold: groups that differ little, a small shift, or edges that are hardly nearer."""
    little: list[Tables] = [
        {"data": {"groups": {"kind": "rotation", "count": 2, "degrees": float(rng.uniform(20, 60))}}},
        {
            "data": {
                "partition": "dirichlet",
                "alpha": 0.3,
                "shift": float(rng.uniform(0.1, 0.25)),
                "server": 0.1,
            }
        },
        {"fleet": {"edges": 4, "links": {"edge": {"latency": 0.02}, "cloud": {"latency": 0.05}}}},
    ]
    return little[rng.integers(len(little))]


KINDS: dict[str, Callable[[Rng], Tables]] = {
    "groups": groups,
    "shift": shift,
    "edges": edges,
    "users": users,
    "memory": memory,
    "equal": equal,
    "nearly": nearly,
}
FITS = {"groups": "auxo", "shift": "classter", "edges": "maverick", "users": "shufflefl", "memory": "fedrac"}
MIXTURES = ("groups+edges", "groups+users", "groups+memory", "users+groups", "shift+edges", "edges+memory")


def federation(kind: str, seed: int) -> Experiment:
    """One drawn at random; kinds may be added up, and the later ones win where they say the same."""
    rng = np.random.default_rng((seed, sum(kind.encode())))
    data: dict[str, Any] = {"source": "digits", "clients": int(rng.integers(30, 50)), "partition": "iid"}
    fleet: dict[str, Any] = {"source": "uniform"}
    for part in kind.split("+"):
        drawn = KINDS[part](rng)
        data, fleet = {**data, **drawn.get("data", {})}, {**fleet, **drawn.get("fleet", {})}
    data = {key: value for key, value in data.items() if value is not None}
    if fleet["source"] == "table":
        fleet.pop("link_spread", None)
    return Experiment(name=kind.replace("+", "-"), seed=seed, data=data, fleet=fleet)


def main(passes: int = 1) -> None:
    print(f"{'federation':<16}{'advised':<12}{'then':<12}{'pilots best':<12}{'ahead':>7}  agree  seconds")
    outcomes: Counter[str] = Counter()
    for seed in range(1, passes + 1):
        for kind in (*KINDS, *MIXTURES):
            wanted, began = federation(kind, seed), time.perf_counter()
            _, measured = measure_file(wanted)
            verdict = judge(measured)
            tried = run_pilot(wanted, verdict, measured)
            second = verdict.runners_up[0].algorithm if verdict.runners_up else "-"
            ahead = max((a for t in tried.trials[1:] if (a := tried.ahead(t)) is not None), default=0.0)
            said = {True: "yes", False: "no", None: "untried"}[tried.agrees]
            outcomes[said] += 1
            outcomes["among"] += tried.best in {
                tried.wanted or "fedavg",
                *(a.algorithm for a in verdict.runners_up),
            }
            print(
                f"{kind:<16}{tried.wanted or 'fedavg':<12}{second:<12}{tried.best:<12}{100 * ahead:>+7.1f}  "
                f"{said:<6}{time.perf_counter() - began:>8.1f}",
                flush=True,
            )
    total = outcomes["yes"] + outcomes["no"] + outcomes["untried"]
    print(
        f"{outcomes['yes']} of {total} pilots agree with the advice, {outcomes['untried']} couldn't be tried"
    )
    print(f"in {outcomes['among']} of {total} the best of the pilot is the advice or a runner-up")

"""The search's two loops, as plain as they come: `compiled` gives them to numba. `walk` has them in numpy."""

import math

import numpy as np

from potluck.algorithms.shufflefl.planner.problem import Floats, Ints


def descend(
    plan: Ints,
    has: Floats,
    flow: Floats,
    far: Floats,
    less: Floats,
    more: Floats,
    best: Ints,
    shift: Floats,
    path: Floats,
    work: Floats,
    wanted: Floats,
    alpha: float,
    spread: bool,
    slow: float,
    soft: float,
    empty: float,
    ways: Floats,
    idle: bool,
    least: float,
    margin: float,
) -> tuple[int, float]:
    """As `Walk._descend`: changes the plan and its tables, and the best plan where there is a better one.

    `ways` are seconds of a device with rows; `idle`: others aren't in the deviation. Gives the steps
    taken and the worth of the best.
    """
    devices, classes = has.shape
    fixed = 0.0
    for i in range(classes):
        fixed += wanted[i] * math.log(wanted[i])
    took, price = np.empty(devices), np.empty((devices, devices, devices))
    rows, later = np.empty(devices), np.empty(devices)
    logs = np.zeros(int(has.sum()) + 2)  # k ln k
    for k in range(1, len(logs)):
        logs[k] = k * math.log(k)
    open_rows, steps = 0, 0
    for count in plan.ravel():
        if count > 0:
            open_rows += 1
    while True:
        # What the plan is worth now, truly and softened.
        mean, train = 0.0, 0
        for d in range(devices):
            rows[d] = flow[:, d].sum()
            train += 1 if rows[d] > 0 or not idle else 0
        for d in range(devices):
            took[d] = ways[d] if rows[d] > 0 else 0.0
            for e in range(devices):
                took[d] += work[d] * flow[e, d] + flow[e, d] * path[e, d] + flow[d, e] * path[d, e]
            mean += took[d] / train if rows[d] > 0 or not idle else 0.0
        high, worst, off = took.max(), far.max(), 0.0
        for d in range(devices):
            off += (took[d] - mean) ** 2 / train if rows[d] > 0 or not idle else 0.0
        deviation = math.sqrt(off) if spread else 0.0
        true = high + deviation + alpha * worst
        if true + margin * (true + alpha) < least:
            least = true
            best[:] = plan
        now = true
        if slow > 0:
            many, wide = 0.0, 0.0
            for d in range(devices):
                many += math.exp((took[d] - high) / slow)
                wide += math.exp((far[d] - worst) / soft)
            now += slow * math.log(many) + alpha * soft * math.log(wide)

        # What latencies would be after a row of each origin had gone from each device to each.
        for v in range(devices):
            for a in range(devices):
                for t in range(devices):
                    price[v, a, t] = math.inf
                    if a == t or flow[v, a] == 0:
                        continue
                    top, mean, left = -math.inf, 0.0, train
                    if idle:
                        left += (1 if rows[t] == 0 else 0) - (1 if rows[a] == 1 else 0)
                    for d in range(devices):
                        after = took[d] + shift[v, a, t, d]
                        if d == a and rows[d] == 1:
                            after -= ways[d]
                        if d == t and rows[d] == 0:
                            after += ways[d]
                        later[d] = after
                        top = max(top, after)
                        if not idle or d == t or rows[d] > (1 if d == a else 0):
                            mean += after / left
                    many, off = 0.0, 0.0
                    for d in range(devices):
                        after = later[d]
                        if not idle or d == t or rows[d] > (1 if d == a else 0):
                            off += (after - mean) ** 2 / left
                        if slow > 0:
                            many += math.exp((after - top) / slow)
                    price[v, a, t] = top + (slow * math.log(many) if slow > 0 else 0.0)
                    if spread:
                        price[v, a, t] += math.sqrt(off)

        # The best move of all. Softened maxima are never below the true ones, which rules most moves out.
        goal, source, label, at, to = now - margin * (now + alpha), -1, -1, -1, -1
        steps += open_rows * (devices - 1)
        for a in range(devices):
            for t in range(devices):
                low = price[:, a, t].min()
                if low == math.inf:
                    continue
                rest, others = -math.inf, 0.0
                for d in range(devices):
                    if d != a and d != t:
                        rest = max(rest, far[d])
                if soft > 0:
                    for d in range(devices):
                        if d != a and d != t:
                            others += math.exp((far[d] - rest) / soft)
                for i in range(classes):
                    if has[a, i] == 0:
                        continue
                    top = max(less[a, i], more[t, i], rest)
                    if low + alpha * top >= goal:
                        continue
                    if soft > 0:
                        wide = math.exp((less[a, i] - top) / soft) + math.exp((more[t, i] - top) / soft)
                        if others > 0:
                            wide += others * math.exp((rest - top) / soft)
                        top += soft * math.log(wide)
                    for v in range(devices):
                        if plan[v, i, a] > 0 and price[v, a, t] + alpha * top < goal:
                            goal, source, label, at, to = price[v, a, t] + alpha * top, v, i, a, t
        if source < 0:
            return steps, least

        plan[source, label, at] -= 1
        plan[source, label, to] += 1
        if plan[source, label, at] == 0:
            open_rows -= 1
        if plan[source, label, to] == 1:
            open_rows += 1
        flow[source, at] -= 1
        flow[source, to] += 1
        has[at, label] -= 1
        has[to, label] += 1

        # Imbalances of the two anew: `Walk._look` says how.
        for d in (at, to):
            n, own = 0.0, 0.0
            for i in range(classes):
                n += has[d, i]
                own += logs[int(has[d, i])]
            for change in (0, 1, -1):
                total = n + change
                mixed = 0.0
                for i in range(classes):
                    z = has[d, i] + total * wanted[i]
                    if z > 0:
                        mixed += z * math.log(z)
                if change == 0:
                    far[d] = empty
                    if n > 0:
                        nats = math.log(2) + (own / n + fixed - mixed / n + math.log(n)) / 2
                        far[d] = max(nats, 0.0)
                    continue
                table = more if change == 1 else less
                for i in range(classes):
                    table[d, i] = empty
                    x = has[d, i]
                    if total <= 0 or x + change < 0:
                        continue
                    z, w = x + total * wanted[i], x + change + total * wanted[i]
                    one = own - logs[int(x)] + logs[int(x) + change]
                    mix = mixed - (z * math.log(z) if z > 0 else 0.0) + w * math.log(w)
                    nats = math.log(2) + (one / total + fixed - mix / total + math.log(total)) / 2
                    table[d, i] = max(nats, 0.0)


def exchange(
    plan: Ints,
    has: Floats,
    far: Floats,
    took: Floats,
    shift: Floats,
    out: Floats,
    back: Floats,
    alpha: float,
    spread: bool,
    idle: bool,
    at: int,
    goal: float,
) -> tuple[int, int, int, int, int, float, int]:
    """As `Walk._exchange`, for a price below `goal`; and the steps taken."""
    devices, classes = has.shape
    best, steps, train = (-1, -1, -1, -1, -1), 0, 0
    slow, rows = np.empty((devices, devices)), np.empty(devices)
    for d in range(devices):
        rows[d] = has[d].sum()
        train += 1 if rows[d] > 0 or not idle else 0
    for to in range(devices):
        if to == at:
            continue
        low = math.inf
        for v in range(devices):
            for w in range(devices):
                top, mean, off = -math.inf, 0.0, 0.0
                for d in range(devices):
                    after = took[d] + shift[v, at, to, d] + shift[w, to, at, d]
                    top = max(top, after)
                    mean += after / train if rows[d] > 0 or not idle else 0.0
                for d in range(devices):
                    if rows[d] > 0 or not idle:
                        off += (took[d] + shift[v, at, to, d] + shift[w, to, at, d] - mean) ** 2 / train
                slow[v, w] = top + (math.sqrt(off) if spread else 0.0)
                low = min(low, slow[v, w])
        rest = 0.0
        for d in range(devices):
            if d != at and d != to:
                rest = max(rest, far[d])
        for i in range(classes):
            if has[at, i] == 0:
                continue
            for j in range(classes):
                if has[to, j] == 0:
                    continue
                steps += 1
                here, there = far[at], far[to]
                if i != j:  # else a row for one of its own class
                    here, there = here + out[at, i] + back[at, j], there + back[to, i] + out[to, j]
                worst = alpha * max(here, there, rest)
                if low + worst >= goal:
                    continue
                for v in range(devices):
                    if plan[v, i, at] == 0:
                        continue
                    for w in range(devices):
                        if plan[w, j, to] > 0 and slow[v, w] + worst < goal:
                            goal, best = slow[v, w] + worst, (v, i, w, j, to)
    return (*best, goal, steps)

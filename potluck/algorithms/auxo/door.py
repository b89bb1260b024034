"""The door: devices are invited, check in and wait for a round of the cohort that they asked for."""

from collections.abc import Collection
from dataclasses import replace

from potluck.algorithms.auxo.criterion import Rates
from potluck.algorithms.auxo.device import SLOT, CheckIn, Request, unpack_request
from potluck.algorithms.auxo.state import Crowd
from potluck.authoring import Command, Context, Got, Node, Task, nbytes


def invite(
    m: Crowd, wanted: int, barred: Collection[Node], rates: Rates, every: bool, ctx: Context
) -> tuple[Crowd, list[Command]]:
    """As many devices as the cohorts that could begin a round still lack; `wanted`: before each round."""
    idle = [name for name in m.cohorts if name not in m.running]
    m = replace(m, queue=m.queue | {name: drop_absent(m.queue[name], ctx) for name in idle})
    short = sum(max(0, wanted - len(m.queue[name])) for name in idle)
    if not short:
        return m, []
    waiting = {n for queue in m.queue.values() for n in queue}
    nodes = ctx.sample(short, waiting.union(barred))
    send = {"leaves": list(m.cohorts), "epsilon": rates.epsilon * rates.decay**m.round}
    job = CheckIn(rates.bonus, every)
    return replace(m, dry=len(nodes) < short), [Task(n, job, send, slot=SLOT) for n in nodes]


def match(m: Crowd, got: Got, bonus: float, ctx: Context) -> Crowd:
    """Everybody who checked in, to the leaf that is closest to what was asked for."""
    queue = {name: dict(waiting) for name, waiting in m.queue.items()}
    messages = m.messages
    for r in got.replies:
        request = unpack_request(r.body, r.task.send["leaves"])
        if request is None:  # bytes that say nothing, as if they had been lost
            continue
        leaf, request = m.find_leaf(request, bonus, ctx.rng)
        queue[leaf][r.task.to] = request
    if got.replies:
        one = got.replies[0]
        messages += len(got.replies) * (nbytes(one.body) + nbytes(one.task.send))
    return replace(m, queue=queue, messages=messages)


def drop_absent(queue: dict[Node, Request], ctx: Context) -> dict[Node, Request]:
    """Those of a queue who haven't left by now."""
    return {n: queue[n] for n in ctx.ready(list(queue))} if queue else queue

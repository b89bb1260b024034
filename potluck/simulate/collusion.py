"""What attackers who collude send: the formulas, on the updates that they hear of.

In all of them the mean is over devices, one like another, of what honest ones send (`knows = "all"`, the
papers' full knowledge, or omniscience) or of what the colluders themselves would truly send (`knows = "own"`,
partial knowledge; also where only one honest update is heard of). n updates, of which m are the colluders',
are crafted together: `crew` says which. All floating-point tensors of a reply are crafted as one vector;
distances, which Krum and the two searches go by, are of `delta` alone, since judges compare that.

`fang` (Fang, Cao, Jia, Gong 2020, Local Model Poisoning Attacks to Byzantine-Robust Federated Learning,
USENIX Security, sections 3.3 and 3.4): against trimmed mean and median. Each number is drawn beyond the
honest ones, against the direction in which their mean goes: between the least and twice it, or half of it
where that is farther off (b = 2). With partial knowledge it is drawn 3 to 4 deviations from the mean.

`fang_krum` (the same, section 3.2): -lambda sign(mean). Lambda is halved from the upper bound of theorem 1
until Krum picks the crafted update, and ends at 1e-5; the first colluder sends it, the others something
within `scale` of it. With partial knowledge Krum is tried on the colluders' own true updates, beside one
crafted copy, then two, up to m. Colluders take it that Krum is told their number; where they are so many
that the bound has no divisor it is 1.

`alie` (Baruch, Baruch, Goldberg 2019, A Little Is Enough, NeurIPS, algorithm 3): mean - z deviation. With
s = [n/2 + 1] - m supporters needed, z is the normal quantile of (n - m - s) / (n - m). Ours: s is 1 at least
(a majority needs none, and z has no end) and z no less than 0 (below it the attack would help).

`min_max`, `min_sum` (Shejwalkar, Houmansadr 2021, Manipulating the Byzantine, NDSS, section IV): mean + gamma
p. What p is, `what` says: minus the honest ones' deviation (`std`), minus the mean at length 1 (`unit`) or
minus its sign (`sign`). Gamma is the largest that the authors' search (from 10, halving, to 1e-5) finds such
that the update is no farther from any honest one than these are from each other, or such that the sum of its
squared distances is no more than the least such sum of an honest one (so in their code; in the paper, the
largest). `std` is our choice of default; theirs goes by data set.

`ipm` (Xie, Koyejo, Gupta 2020, Fall of Empires, UAI): -epsilon mean, epsilon being the scale. 0.5 is ours:
below 1, so that the update hides among honest ones; others take 0.1 against Krum, and more against means.

`backdoor` (Bagdasaryan, Veit, Hua, Estrin, Shmatikov 2020, How To Backdoor Federated Learning, AISTATS): the
update that was trained on marked rows (`data.trigger`), times n / m unless a scale is said, so that a plain
mean becomes what the colluders' is (the paper's model replacement, by one attacker, at a server's step of 1).
Deviations: a pattern is the trigger, as in BadNets (Gu et al. 2017), instead of images with features of their
own; nothing is added to the loss to hide from anomaly detection.

Deviations of both of Fang's: numbers are those of updates, not of models (as in Shejwalkar's code, too); what
moves by rounding alone has no direction, so that all executors agree on it. Who hears of one update alone,
its own, takes the root mean square of each tensor for the deviation: `fang` goes on as with partial
knowledge, `fang_krum` takes the upper bound, `alie` has z = 0 unless it is said, `min_max` and `min_sum` tell
the truth, `ipm` and `backdoor` take what there is.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from potluck.core import keys
from potluck.core.trees import Tree, split
from potluck.fleet import Attack
from potluck.rules.robust import Floats, floats, krum_scores, squared_distances

LEAST = 1e-5  # at which searches end
FIRST = 10.0  # gamma, where its search begins


class Heard(NamedTuple):
    """What colluders hear of, as vectors in double precision."""

    honest: Tensor  # [n - m, d] updates of others
    own: Tensor  # [m, d] their own true ones
    sizes: list[int]  # of the tensors in d
    coarse: list[float]  # of each tensor: what counts as rounding, in root mean squares
    judged: slice  # of d: what judges compare

    @classmethod
    def of(cls, honest: Sequence[Tree], own: Sequence[Tree]) -> "Heard":
        first = floats(own[0])
        flat = [torch.cat([t.reshape(-1).double() for t in floats(body)]) for body in (*honest, *own)]
        rows = torch.stack(flat)
        coarse = [math.sqrt(torch.finfo(t.dtype).eps) for t in first]
        return cls(
            rows[: len(honest)],
            rows[len(honest) :],
            [t.numel() for t in first],
            coarse,
            _find_delta(own[0]),
        )

    def choose(self, knows: str | None) -> Tensor:
        """The updates that mean and deviation are estimated from."""
        return self.honest if knows != "own" and len(self.honest) > 1 else self.own

    def measure(self, vector: Tensor) -> Tensor:
        """The root mean square of each tensor, in the place of each of its numbers."""
        means = [part.square().mean().sqrt().expand(len(part)) for part in vector.split(self.sizes)]
        return torch.cat(means)

    def direct(self, known: Tensor) -> Tensor:
        """Where the mean goes if nobody lies, 1 or -1; 0 where it moves by rounding alone."""
        mean = (torch.cat([self.honest, self.own]) if known is self.honest else known).mean(0)
        sizes = torch.tensor(self.sizes, device=mean.device)
        least = torch.tensor(self.coarse, dtype=mean.dtype, device=mean.device).repeat_interleave(sizes)
        return torch.where(mean.abs() > least * self.measure(mean), mean.sign(), 0.0)

    def spread(self, known: Tensor, correction: int) -> Tensor:
        """The deviation of each number."""
        return self.measure(known[0]) if len(known) < 2 else known.std(0, correction=correction)


def craft(attack: Attack, honest: Sequence[Tree], own: Sequence[Tree], seeds: Sequence[int]) -> list[Tree]:
    """What each colluder sends, given bodies of the same form that are true; `seeds`: of its lie."""
    if not any(t.numel() for t in floats(own[0])):
        return list(own)
    heard = Heard.of(honest, own)
    rows = _KINDS[attack.kind](heard, attack, seeds)
    return [_put(body, row) for body, row in zip(own, rows, strict=True)]


def _draw_fang(heard: Heard, attack: Attack, seeds: Sequence[int]) -> list[Tensor]:
    known = heard.choose(attack.knows)
    way, mean = heard.direct(known), known.mean(0)
    draws = [keys.uniform(keys.as_tensor(seed).to(mean.device), (len(mean),), mean.dtype) for seed in seeds]
    if known is heard.honest:
        edge = torch.where(way > 0, known.amin(0), known.amax(0))
        beyond = way * edge <= 0  # zero lies between it and where the mean goes: away from zero is beyond it
        numbers = [edge * torch.where(beyond, 1 + draw, 1 - draw / 2) for draw in draws]
    else:
        spread = heard.spread(known, 0)
        numbers = [mean - way * spread * (3 + draw) for draw in draws]
    return [torch.where(way == 0, mean, row) for row in numbers]


def _aim_at_krum(heard: Heard, attack: Attack, seeds: Sequence[int]) -> list[Tensor]:
    known, near = heard.choose(attack.knows), attack.strength
    assert near is not None
    way, judged = heard.direct(known), known[:, heard.judged]
    # Of others' updates nothing is known: one crafted update has to do beside their own, or a few.
    counts = [len(seeds)] if known is heard.honest else range(1, len(seeds) + 1)
    length = 0.0
    for count in counts:
        length, picked = find_lambda(judged, way[heard.judged], count)
        if picked:
            break
    best = -length * way
    rows = [best]
    for seed in seeds[1:]:
        key = keys.as_tensor(seed).to(best.device)
        off = keys.normal(key, (len(best),), best.dtype)
        far = near * keys.uniform(keys.fold_in(key, 1), (), best.dtype)
        rows.append(best + off * (far / off.norm()))
    return rows


def find_lambda(benign: Tensor, way: Tensor, crafted: int) -> tuple[float, bool]:
    """The step against `way` that Krum picks among so many crafted updates and benign ones; if it does."""
    count, root = len(benign), math.sqrt(max(1, len(way)))
    norms: Floats = benign.square().sum(1).cpu().numpy()
    length = math.sqrt(norms.max()) / root
    if count < 2:
        return length, True
    dots: Floats = (benign @ way).cpu().numpy()
    squares = squared_distances(list(benign))
    nearest = np.sort(np.sqrt(squares), axis=1)[:, 1 : count - 1]  # m - c - 2 others; the first is its own
    length += float(nearest.sum(1).min()) / (max(1, count - crafted - 1) * root)
    ones, everybody = float(way @ way), count + crafted
    while length > LEAST:
        table = np.zeros((everybody, everybody))
        table[crafted:, crafted:] = squares
        table[:crafted, crafted:] = norms + 2 * length * dots + length**2 * ones
        table[crafted:, :crafted] = table[:crafted, crafted:].T
        scores = krum_scores(table, min(crafted, everybody - 3))
        if scores[:crafted].min() < scores[crafted:].min():
            return length, True
        length /= 2
    return length, False


def _leave_mean_a_little(heard: Heard, attack: Attack, seeds: Sequence[int]) -> list[Tensor]:
    known = heard.choose(attack.knows)
    z = find_z(len(heard.honest) + len(seeds), len(seeds)) if attack.strength is None else attack.strength
    return [known.mean(0) - z * heard.spread(known, 0)] * len(seeds)


def find_z(n: int, m: int) -> float:
    """How many deviations hide m colluders among n, by the supporters that they need for a majority."""
    others = n - m
    supporters = max(1, n // 2 + 1 - m)
    share = (others - supporters) / others if others else 0.0
    return max(0.0, NormalDist().inv_cdf(share)) if share > 0 else 0.0


def _leave_mean_unseen(heard: Heard, attack: Attack, seeds: Sequence[int]) -> list[Tensor]:
    known = heard.choose(attack.knows)
    mean = known.mean(0)
    if len(known) < 2:
        return [mean] * len(seeds)
    if attack.what == "sign":
        away = -heard.direct(known)
    elif attack.what == "unit":
        away = -mean / mean[heard.judged].norm().clamp_min(torch.finfo(mean.dtype).tiny)
    else:
        away = -heard.spread(known, 1)
    gamma = find_gamma(known[:, heard.judged], away[heard.judged], every=attack.kind == "min_max")
    return [mean + gamma * away] * len(seeds)


def find_gamma(benign: Tensor, away: Tensor, every: bool) -> float:
    """How far along `away` an update may leave the mean: by every one of its distances, or by their sum."""
    gaps = benign.mean(0) - benign
    own, along = gaps.square().sum(1), gaps @ away
    length, squares = away @ away, squared_distances(list(benign))
    bound = float(squares.max() if every else squares.sum(1).min())

    def fits(gamma: float) -> bool:
        reach = own + 2 * gamma * along + gamma**2 * length
        return bool((reach.max() if every else reach.sum()) <= bound)

    found, gamma, step = 0.0, FIRST, FIRST
    while abs(found - gamma) > LEAST:
        step /= 2
        if fits(gamma):
            found = gamma
            gamma += step
        else:
            gamma -= step
    return found


def _turn_mean(heard: Heard, attack: Attack, seeds: Sequence[int]) -> list[Tensor]:
    assert attack.strength is not None
    return [-attack.strength * heard.choose(attack.knows).mean(0)] * len(seeds)


def _outweigh(heard: Heard, attack: Attack, seeds: Sequence[int]) -> list[Tensor]:
    replaces = (len(heard.honest) + len(seeds)) / len(seeds)
    return list(heard.own * (replaces if attack.strength is None else attack.strength))


_KINDS = {
    "fang": _draw_fang,
    "fang_krum": _aim_at_krum,
    "alie": _leave_mean_a_little,
    "min_max": _leave_mean_unseen,
    "min_sum": _leave_mean_unseen,
    "ipm": _turn_mean,
    "backdoor": _outweigh,
}


def _find_delta(body: Tree) -> slice:
    """Where the numbers of `delta` are among all; everywhere, in a body that has none."""
    begin = 0
    for name, part in body.items() if isinstance(body, dict) else ():
        size = sum(t.numel() for t in floats(part))
        if name == "delta" and size:
            return slice(begin, begin + size)
        begin += size
    return slice(None)


def _put(body: Tree, row: Tensor) -> Tree:
    """A body with other floating-point numbers."""
    tensors, rebuild = split(body)
    made, begin = [], 0
    for t in tensors:
        if t.is_floating_point():
            made.append(row[begin : begin + t.numel()].reshape(t.shape).to(t.dtype))
            begin += t.numel()
        else:
            made.append(t)
    return rebuild(made)

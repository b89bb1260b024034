"""Who holds which classes, and how much of what can be seen there is chance."""

import numpy as np
from numpy.typing import NDArray

from potluck.data import Split
from potluck.federation import Federation

DEALS = 10  # times that labels are dealt anew, to see what chance does

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def count_rows(federation: Federation, nodes: Ints, split: Split) -> Ints:
    """Rows [devices, classes]."""
    labels = federation.pool.y.cpu().numpy()
    partition = federation.partition
    return np.stack(
        [np.bincount(labels[partition.rows(int(n), split)], minlength=federation.classes) for n in nodes]
    )


def measure_skew(counts: Ints, whole: Ints, rng: np.random.Generator) -> float:
    """Mean distance of mixes [holders, classes] from the whole's, less that of as many rows drawn from it."""
    share = whole / whole.sum()
    drawn = [np.stack([rng.multinomial(n, share) for n in counts.sum(1)]) for _ in range(DEALS)]
    found = measure_distance(counts, share) - np.mean([measure_distance(deal, share) for deal in drawn])
    return max(0.0, float(found))


def measure_distance(counts: Ints, share: Floats) -> float:
    """Mean total variation of mixes from one: 0 alike, near 1 all different."""
    mixes = counts / counts.sum(1, keepdims=True).clip(1)
    return float((0.5 * np.abs(mixes - share).sum(1)).mean())


def measure_unseen(train: Ints, test: Ints, rng: np.random.Generator) -> float:
    """The share of `strange` rows, less that of rows dealt anew between train and test."""
    again = [share_unseen(*deal_again(train, test, rng)) for _ in range(DEALS)]
    return max(0.0, share_unseen(train, test) - float(np.mean(again)))


def measure_gini(sizes: Ints) -> float:
    """Of numbers of rows."""
    ordered, n = np.sort(sizes).astype(float), len(sizes)
    return float(2 * (np.arange(1, n + 1) * ordered).sum() / (n * ordered.sum()) - (n + 1) / n)


def share_unseen(train: Ints, test: Ints) -> float:
    """Share of all devices' test rows whose class their device doesn't train on."""
    return float((test * (train == 0)).sum() / test.sum())


def deal_again(train: Ints, test: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Every device's rows shuffled between its two splits: rare classes go unseen by chance too."""
    both = train + test
    again = np.stack(
        [rng.multivariate_hypergeometric(own, n) for own, n in zip(both, test.sum(1), strict=True)]
    )
    return both - again, again

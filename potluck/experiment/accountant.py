"""What local differential privacy came to: epsilon of the device that sent the most updates.

Each device's updates are released one after another to the same eyes, so a device's epsilon is that of its
own updates composed; other devices' don't count, and nothing is amplified (see `potluck.jobs.privacy` for who
is trusted). A run's epsilon is that of the most active device, which bounds everybody's.

Gaussian noise of multiplier s, k times, tells exactly as much as once with s / sqrt(k). The curve of delta
over epsilon is dp-accounting's; its Rényi accountant gives the bound below which epsilon is searched.
"""

import importlib.util
from collections.abc import Iterable, Sequence

from potluck.core.errors import ConfigError
from potluck.core.records import Record
from potluck.metrics import Privacy

PER_CLIP = 2.0  # distance of two clipped updates, in clips: a client's data replaced by any other


def check_installed() -> None:
    """Refuse privacy that nobody could count."""
    if importlib.util.find_spec("dp_accounting") is None:
        raise ConfigError(
            "train.privacy: dp-accounting, which counts epsilon, isn't installed; "
            "`pip install 'potluck[privacy]'`, or leave train.privacy out"
        )


def epsilon(updates: Iterable[tuple[float, int]], delta: float, distance: float = PER_CLIP) -> float:
    """Of updates with noise of `sigma` clips, so many each; `distance`: sensitivity in clips."""
    check_installed()
    import dp_accounting as dp  # here: it takes seconds to import
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

    information = sum(count * (distance / sigma) ** 2 for sigma, count in updates)
    if information == 0:
        return 0.0
    once = information**-0.5  # the noise multiplier of a single release that tells as much
    bound = dp.rdp.RdpAccountant().compose(dp.GaussianDpEvent(once)).get_epsilon(delta)
    curve = GaussianPrivacyLoss(once, sensitivity=1)
    low, high = 0.0, float(bound)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if curve.get_delta_for_epsilon(middle) > delta else (low, middle)
    return high


def summarise_privacy(records: Sequence[Record]) -> Privacy | None:
    """What a run's records say of its privacy, None if it had none; epsilon is None if nobody can count."""
    latest: dict[tuple[float, float], int] = {}
    for r in records:
        if r["metric"] == "private_updates":
            latest[r["value"]["sigma"], r["value"]["delta"]] = r["value"]["updates"]
    if not latest:
        return None
    delta = max(delta for _, delta in latest)
    updates = [(sigma, count) for (sigma, _), count in latest.items()]
    known = importlib.util.find_spec("dp_accounting") is not None
    return {
        "epsilon": epsilon(updates, delta) if known else None,
        "delta": delta,
        "updates": sum(latest.values()),  # of the most active device
        "sigma": min(sigma for sigma, _ in updates),
        "model": "local, replacement of a device's data",
    }

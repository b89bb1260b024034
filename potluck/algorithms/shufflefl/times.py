"""How long a user's gateway plans, on the virtual clock: never the host's own time.

For SLSQP the paper measured it on seven gateways (its Tables 5 to 10); between and beyond its sizes a curve
through its own numbers is taken. For other methods it is steps times a constant. The paper has none of these:
gateways' speeds relative to each other are those of its tables, and the constant of a Raspberry Pi 4 is an
assumption, some seven times what a server's core takes in plain numpy when there are many classes.
"""

import math

import numpy as np

from potluck.algorithms.shufflefl.merging import count_groups
from potluck.core.errors import ConfigError, nearest, require

# In the order of the columns below. The paper calls the last two Jetson AGX Xavier in its Table 5.
GATEWAYS = ("pi4", "nano-1", "nano-2", "tx2-1", "tx2-2", "xavier-1", "xavier-2")
CLASSES = {"femnist": 62, "shakespeare": 80, "speech": 35, "harbox": 5, "realworld": 8}

# Table 5: how far each gateway shrinks the classes.
GAMMAS: dict[str, tuple[float, ...]] = {
    "femnist": (0.25, 0.10, 0.10, 0.15, 0.15, 0.25, 0.20),
    "shakespeare": (0.20, 0.10, 0.10, 0.125, 0.125, 0.20, 0.15),
    "speech": (0.35, 0.20, 0.20, 0.25, 0.25, 0.35, 0.30),
}

# Tables 6 to 10: seconds, by devices of the user.
REDUCED: dict[str, dict[int, tuple[float, ...]]] = {
    "femnist": {
        3: (7.56, 6.05, 9.40, 4.34, 8.34, 3.36, 5.06),
        4: (13.63, 18.93, 29.33, 13.18, 23.12, 9.07, 10.85),
        5: (29.98, 33.79, 56.35, 30.72, 44.83, 17.86, 24.54),
        6: (63.60, 69.91, 96.03, 62.34, 99.71, 48.78, 58.47),
    },
    "shakespeare": {
        3: (4.06, 4.77, 7.67, 4.07, 9.08, 3.84, 4.57),
        4: (12.85, 13.68, 26.10, 17.68, 23.38, 12.56, 21.38),
        5: (26.85, 31.95, 66.93, 30.50, 60.54, 30.13, 34.90),
        6: (56.88, 73.01, 95.48, 67.42, 85.36, 55.29, 64.31),
    },
    "speech": {
        3: (5.40, 4.85, 10.16, 5.11, 7.14, 4.54, 7.49),
        4: (15.10, 17.05, 24.49, 15.24, 20.57, 11.94, 12.93),
        5: (26.93, 30.18, 44.47, 19.69, 35.95, 13.28, 28.94),
        6: (48.62, 63.56, 78.07, 54.97, 75.94, 43.28, 57.65),
    },
}
FULL: dict[str, dict[int, tuple[float, ...]]] = {
    "femnist": {
        3: (25.24, 239.02, 305.87, 51.64, 245.77, 22.49, 35.89),
        4: (1353.06, 2159.08, 3050.94, 1548.95, 2524.30, 209.06, 1498.59),
        5: (3693.89, 4785.39, 9875.78, 4103.72, 6460.34, 2583.75, 3988.52),
        6: (11718.22, 19256.10, 42039.11, 18119.44, 28600.39, 11572.61, 13212.79),
    },
    "shakespeare": {
        3: (65.68, 240.41, 829.14, 135.62, 625.10, 37.03, 107.66),
        4: (500.82, 994.04, 1573.03, 799.27, 1132.73, 486.08, 623.84),
        5: (2066.64, 3068.35, 4964.06, 3048.65, 3522.68, 1612.25, 2448.82),
        6: (10059.33, 13564.07, 38270.15, 12728.67, 18645.53, 8726.23, 10080.24),
    },
    "speech": {
        3: (20.25, 69.92, 129.17, 52.38, 73.32, 7.80, 29.20),
        4: (60.08, 260.99, 453.31, 195.09, 486.84, 56.31, 167.66),
        5: (246.37, 1220.90, 2111.91, 943.78, 1506.74, 160.70, 449.16),
        6: (1899.56, 3683.57, 5446.48, 3669.90, 4169.65, 759.64, 2248.08),
    },
    "harbox": {
        3: (4.35, 5.72, 9.59, 3.02, 5.33, 2.70, 3.50),
        4: (8.24, 13.24, 19.41, 10.42, 16.05, 7.17, 8.87),
        5: (17.09, 28.04, 44.48, 21.83, 35.94, 15.83, 19.23),
    },
    "realworld": {7: (25.26, 41.51, 53.60, 30.05, 49.47, 16.20, 35.54)},
}

PI4_STEP = 1e-6  # seconds of a Raspberry Pi 4 for one step of `Search`: an assumption, see above


def read_times(gateway: str) -> dict[tuple[int, int], float]:
    """The paper's seconds of SLSQP on a gateway, by devices and by classes (or groups of them) planned for.

    Where it measured the same size twice, the mean.
    """
    at = _place(gateway)
    found: dict[tuple[int, int], list[float]] = {}
    for data, table in FULL.items():
        for devices, row in table.items():
            found.setdefault((devices, CLASSES[data]), []).append(row[at])
    for data, table in REDUCED.items():
        groups = count_groups(GAMMAS[data][at], CLASSES[data])
        for devices, row in table.items():
            found.setdefault((devices, groups), []).append(row[at])
    return {size: float(np.mean(seconds)) for size, seconds in sorted(found.items())}


def slsqp_seconds(gateway: str, devices: int, classes: int) -> float:
    """Seconds of SLSQP: as measured, or by a parabola through all that was, in logarithms of time and size.

    The size is the number of variables. A user of one device has nothing to plan.
    """
    table = read_times(gateway)
    require(devices >= 1, "devices", devices, "a user needs at least one")
    require(classes >= 1, "classes", classes, "there must be at least one")
    if devices == 1:
        return 0.0
    if (devices, classes) in table:
        return table[devices, classes]
    size = np.log([m * m * c for m, c in table])
    curve = np.polyfit(size, np.log(list(table.values())), 2)
    # To the left of its lowest point a parabola would rise again.
    low = max(float(size.min()), float(-curve[1] / (2 * curve[0])))
    return float(np.exp(np.polyval(curve, max(math.log(devices**2 * classes), low))))


def step_seconds(gateway: str) -> float:
    """Seconds that a gateway takes for a step of `Search`."""
    at = _place(gateway)
    ratios = [
        math.log(row[at] / row[0]) for part in (FULL["harbox"], FULL["realworld"]) for row in part.values()
    ]
    return PI4_STEP * math.exp(float(np.mean(ratios)))


def _place(gateway: str) -> int:
    if gateway not in GATEWAYS:
        raise ConfigError(f"gateway = {gateway!r}: {nearest(gateway, GATEWAYS)}")
    return GATEWAYS.index(gateway)

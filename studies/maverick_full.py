"""Maverick's Table 1 at its full size: all 60,000 images, 1,200 a device.

`potluck study maverick_full --scale paper --set run.device=cuda` takes Fashion-MNIST, a GPU and 36 runs of a
minute or two. On one core a run takes half an hour.
"""

from _maverick import full
from maverick import STUDY as SMALLER

STUDY = full(
    SMALLER,
    title="Maverick: the paper's six systems at their full size",
    question="All 60,000 images, 1,200 a device. 3 of every 10 devices send crafted updates (Fang), and "
    "all six let Adaptive-Krum judge. The paper prints 85.9 % for Maverick and 80.7 % for FedEdge without "
    "saying whose models were looked at; here every system is seen under the same three views.",
)

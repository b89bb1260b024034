"""Maverick's contrastive terms where devices know two classes.

`potluck study maverick_terms_two --scale paper` takes Fashion-MNIST and 36 runs.
"""

from _maverick import with_data
from maverick_terms import STUDY as EVENER

STUDY = with_data(
    EVENER,
    title="Maverick: what the contrastive terms do where devices know two classes",
    question="The same with two classes a device.",
    data={"partition": "shards", "classes_per_client": 2},
)

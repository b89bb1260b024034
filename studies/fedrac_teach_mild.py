"""Fed-RAC whose followers learn from what the leader says as it is, not softened (temperature 1).

`potluck study fedrac_teach_mild --scale paper` takes UCI HAR and 32 runs of about 20 s of one core, 6 minutes
with `--jobs 2`.
"""

from dataclasses import replace

from _fedrac import ALONE, TAUGHT, fedrac
from fedrac_teach import STUDY as SOFTENED

STUDY = replace(
    SOFTENED,
    title="Fed-RAC: what followers learn from a leader at temperature 1",
    question="As above, but the teacher's answers aren't softened: small models have few rounds to come near "
    "logits at a third of their size.",
    arms=[fedrac(ALONE, teach=False), fedrac(TAUGHT, temperature=1.0)],
    notes="Temperature 1 was chosen among four settings by one seed's validation rows.",
)

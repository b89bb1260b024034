"""`python tests/campaign`: run the campaign, or a part of it, or one try again."""

import os
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # rows import what tests share
os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: what is forked can't use more

from campaign._command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())

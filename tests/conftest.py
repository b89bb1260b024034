"""What a machine measures must not decide what tests see, nor reach the user's own cache."""

import math
import os
import signal

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # GPU kernels run on the CPU; read when Triton is first imported

import torch

from potluck.execute.tune import autotune
from potluck.experiment.launch import side_by_side
from potluck.models.registry import MODELS

# A shell's background jobs ignore Ctrl-C, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def nothing_measured(tmp_path_factory):
    """Every batch counts as too small to measure; processes that tests start have a cache of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POTLUCK_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(autotune, "SMALL", math.inf)
        if torch.cuda.is_available():  # tests train in this process, so beside a GPU its forks can't
            patch.setattr(side_by_side, "limit_jobs", lambda jobs, *_: (jobs or 1, ""))
        yield


@pytest.fixture(autouse=True, scope="module")
def own_models():
    """Models that a file's tests register are gone after it: names are few, and a taken one is refused."""
    with pytest.MonkeyPatch.context() as patch:
        len(MODELS)  # what other packages offer is loaded first
        patch.setattr(MODELS, "_values", dict(MODELS))
        patch.setattr(MODELS, "_modules", dict(MODELS._modules))
        yield

"""Models are built alike, whoever builds others beside them."""

import threading

import torch

from potluck.core.job import ModelSpec
from potluck.models import Models

SPEC = ModelSpec("lenet5")


def test_models_that_threads_build_at_once_are_those_of_one_thread():
    """Torch has one random state for all threads; a server and its own device build models side by side."""
    expected = [Models((1, 28, 28), 10)[SPEC].init(key) for key in range(4)]
    wrong, gate = [], threading.Barrier(4)

    def build(key):
        gate.wait()
        for _ in range(15):
            try:
                made = Models((1, 28, 28), 10)[SPEC].init(key)
            except Exception as error:
                wrong.append(str(error))
                continue
            wrong.extend(name for name in made if not torch.equal(made[name], expected[key][name]))

    threads = [threading.Thread(target=build, args=(key,)) for key in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []

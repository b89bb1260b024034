"""One process at a time computes a run, and the lock goes with that process alone."""

import os
import time

import pytest

from potluck.core.errors import ConfigError
from potluck.experiment.run_lock import lock_run


def test_a_second_one_is_refused(tmp_path):
    refused = pytest.raises(ConfigError, match="another process is computing this run")
    with lock_run(tmp_path), refused, lock_run(tmp_path):
        pass
    with lock_run(tmp_path):
        pass


def test_workers_of_a_killed_run_hold_no_lock(tmp_path):
    """A worker that still trains when its parent is killed must not keep the run from going on."""
    ready, tell = os.pipe()
    parent = os.fork()
    if parent == 0:
        with lock_run(tmp_path):
            worker = os.fork()
            if worker == 0:
                time.sleep(20)
                os._exit(0)
            os.write(tell, str(worker).encode().ljust(10))
            os.kill(os.getpid(), 9)
    worker = int(os.read(ready, 10))
    os.waitpid(parent, 0)
    try:
        with lock_run(tmp_path):
            pass
    finally:
        os.kill(worker, 9)
        os.close(ready)
        os.close(tell)

"""Where runs are computed is decided in one place: in this process, side by side, or on other machines."""

import pytest

from potluck.core.errors import ConfigError
from potluck.experiment import Experiment, runs
from potluck.experiment.launch import side_by_side
from potluck.experiment.launch.batch import RunBatch, RunRequest
from potluck.experiment.launch.follower import Done
from potluck.experiment.launch.spread import Spread, read_spread


class Elsewhere:
    """Another machine, which is this one."""

    def __init__(self):
        self.asked = []

    def compute(self, missing, jobs, pool, follower):
        with follower.showing():
            for run in missing:
                self.asked.append((run.name, run.state, jobs))
                follower.start(run, "HOST")
                done = runs.run(run.experiment, run.place)
                follower.end(run, Done(done.summary["accuracy_mean"], 1.0, done.notices, "broke off"))


def request(tmp_path, seed):
    one = Experiment(
        data={"source": "synthetic", "rows": 200, "dimension": 8, "classes": 4, "clients": 4},
        model={"name": "linear"},
        stop={"rounds": 1},
        seed=seed,
        run={"executor": "loop"},
    )
    return RunRequest(f"run-{seed}", one, tmp_path / str(seed))


@pytest.mark.parametrize("jobs", [0, 1, 2])
def test_all_that_is_missing_is_computed_where_it_is_told(tmp_path, jobs, monkeypatch):
    """A single one too, and also with one job at a time, which is the default."""
    monkeypatch.setattr(side_by_side, "compute", None)
    where = Elsewhere()
    for seeds in ([1], [1, 2]):
        batch = RunBatch(len(seeds), len(seeds), spread=Spread(jobs, where))
        asked = [request(tmp_path, seed) for seed in seeds]
        batch.compute_ahead(asked)
        found = [batch.run(*one) for one in asked]
        assert batch.computed == 1
        assert all(run.finished for run in found)
    assert where.asked == [("run-1", "nothing", jobs), ("run-2", "nothing", jobs)]


def test_here_a_single_run_and_one_job_need_no_other_process(tmp_path, monkeypatch):
    monkeypatch.setattr(side_by_side, "compute", None)
    for seeds, jobs in ([1], 2), ([1, 2], 1):
        batch = RunBatch(len(seeds), len(seeds), spread=Spread(jobs))
        batch.compute_ahead([request(tmp_path, seed) for seed in seeds])
        assert batch.computed == 0


def test_several_have_processes_of_their_own_whatever_was_counted(tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr(side_by_side, "compute", lambda missing, *_: found.extend(missing))
    batch = RunBatch(1, 1, spread=Spread(2))
    batch.compute_ahead([request(tmp_path, seed) for seed in (1, 2)])
    assert [run.name for run in found] == ["run-1", "run-2"]


def test_runs_side_by_side_need_a_folder(tmp_path):
    assert read_spread(1, None) == Spread()
    assert read_spread(2, tmp_path) == Spread(2)
    with pytest.raises(ConfigError, match="jobs = 2: runs side by side need a folder"):
        read_spread(2, None)

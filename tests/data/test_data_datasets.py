import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import potluck
from potluck.core.errors import ConfigError, DataError, SnapshotError
from potluck.data import fingerprint, from_dataset
from potluck.experiment.build import build_federation


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def blobs(rows=200, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 4
    return torch.tensor(rng.standard_normal((rows, 6)) + 3 * np.eye(4, 6)[y]), torch.tensor(y)


def test_tensors_rows_and_arrays_give_the_same_pool():
    x, y = blobs()
    pool = from_dataset(TensorDataset(x, y))
    assert (pool.name, len(pool), pool.shape, pool.classes, pool.user) == ("dataset", 200, (6,), 4, None)
    assert np.bincount(pool.y[torch.tensor(pool.test)]).tolist() == [10, 10, 10, 10]
    assert torch.allclose(pool.x * pool.std + pool.mean, x.float(), atol=1e-5)
    for rows in (
        [(value, int(label)) for value, label in zip(x, y, strict=True)],
        [(value.numpy(), label) for value, label in zip(x, y, strict=True)],
        [[value, np.int64(label)] for value, label in zip(x, y, strict=True)],
    ):
        assert fingerprint(from_dataset(Rows(rows))) == fingerprint(pool)


def test_test_rows_users_and_types():
    x, y = blobs()
    train, test = TensorDataset(x[:150], y[:150]), TensorDataset(x[150:], y[150:])
    names = np.array(["ann", "bob", "cy"])[np.arange(150) % 3]
    pool = from_dataset(train, test, user=names, classes=5, name="mine", normalise=False)
    assert (pool.name, pool.classes, pool.mean, pool.std) == ("mine", 5, 0.0, 1.0)
    assert pool.test.tolist() == [False] * 150 + [True] * 50
    assert pool.user.tolist() == [i % 3 for i in range(150)] + [-1] * 50
    assert torch.equal(pool.x, x.float())
    both = from_dataset(train, test, user=list(range(200)))
    assert both.user.tolist() == list(range(200))
    tokens = from_dataset(TensorDataset(torch.arange(40).reshape(20, 2), torch.arange(20) % 2))
    assert tokens.x.dtype == torch.int64
    assert tokens.x[3].tolist() == [6, 7]
    pixels = from_dataset(TensorDataset((x * 20 + 60).byte(), y), normalise=False)
    assert 0 <= float(pixels.x.min()) < float(pixels.x.max()) <= 1
    assert from_dataset(TensorDataset(x.bfloat16(), y)).x.dtype == torch.float32


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


class Unsized(Dataset):
    def __getitem__(self, i):
        return torch.zeros(2), 0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (Stream(), "Stream must be a map-style data set"),
        (Unsized(), "doesn't say how many"),
        (Rows([]), "has no rows"),
        (Rows([{"image": 1}]), r"train row 0: must be a pair \(x, y\), found dict"),
        (Rows([("picture", 1)]), "x must be a tensor or an array, found str; .* ToTensor"),
        (Rows([(torch.zeros(2), 0.5)]), r"train row 0: y must be a whole number, found 0\.5"),
        (Rows([(torch.zeros(2), torch.tensor([0, 1]))]), "y must be a whole number"),
        (
            Rows([(torch.zeros(2), 0), (torch.zeros(3), 1)]),
            r"row 1: is float32 \[3\], row 0 is float32 \[2\]",
        ),
        (TensorDataset(torch.zeros(4, 2), torch.zeros(4)), "labels must be a column of integers"),
    ],
)
def test_rows_that_make_no_sense(rows, message):
    with pytest.raises(DataError, match=message):
        from_dataset(rows)


def test_parts_that_dont_fit():
    x, y = blobs()
    train = TensorDataset(x, y)
    with pytest.raises(DataError, match=r"train rows are float64 \[6\], test rows are float32 \[6\]"):
        from_dataset(train, TensorDataset(x.float(), y))
    with pytest.raises(DataError, match=r"one entry a train row, 200, found \[3\]"):
        from_dataset(train, user=[1, 2, 3])
    with pytest.raises(DataError, match="whole numbers or names"):
        from_dataset(train, user=np.linspace(0, 1, 200))


def experiment(**changes):
    tables = dict(
        data={"source": "mnist", "clients": 4, "partition": "iid"},
        model={"name": "linear"},
        stop={"rounds": 3},
        run={"executor": "loop"},
    )
    return potluck.Experiment(**{**tables, **changes})


def test_a_pool_is_divided_as_the_experiment_says():
    pool = from_dataset(TensorDataset(*blobs()), name="mine")
    done = potluck.run(experiment(), pool=pool)
    assert done.summary["accuracy_mean"] > 0.5
    assert done.experiment.data.source == "python"
    assert done.experiment.data.path == f"mine@{fingerprint(pool).hex()[:12]}"
    assert done.experiment.data.partition == "iid"
    limited = potluck.run(experiment(data={"clients": 2, "limit": 40}), pool=pool)
    assert limited.lines != done.lines
    assert potluck.run(experiment(), pool=pool).lines == done.lines


@pytest.mark.parametrize(
    "how", [{"partition": "iid"}, {"partition": "dirichlet", "alpha": 0.5}, {"partition": "shards"}]
)
def test_a_class_that_nobody_trains_on_is_tested_all_the_same(how):
    asked = experiment(data={"source": "digits", "clients": 4, "without": 3, **how}).resolve()
    federation = build_federation(asked)
    held = np.concatenate(
        [federation.partition.rows(n, part) for n in range(4) for part in ("train", "test")]
    )
    labels = federation.pool.y.numpy()
    assert len(set(labels[held])) > 7
    assert 3 not in labels[held]
    assert set(labels[federation.pool.test]) == set(range(10))


def test_a_class_that_is_not_there_can_not_be_left_out():
    for label in (10, 200):
        with pytest.raises(ConfigError, match=rf"data.without = {label}: digits has classes 0 to 9; name"):
            potluck.run(experiment(data={"source": "digits", "clients": 4, "without": label}))
    with pytest.raises(ConfigError, match=r"data\.without = -1"):
        experiment(data={"without": -1})


def test_a_run_with_a_pool_is_resumed_with_it(tmp_path):
    pool = from_dataset(TensorDataset(*blobs()))
    other = from_dataset(TensorDataset(*blobs(seed=1)))
    whole = potluck.run(
        experiment(run={"executor": "loop", "snapshot_every": 1e-9}), tmp_path / "a", pool=pool
    )
    (tmp_path / "a" / "summary.json").unlink()
    with pytest.raises(ConfigError, match=r"dataset@\w+ was made in Python and is in no file; .* pool="):
        potluck.resume(tmp_path / "a")
    with pytest.raises(SnapshotError):
        potluck.resume(tmp_path / "a", pool=other)
    assert potluck.resume(tmp_path / "a", pool=pool).lines == whole.lines

"""data.server_from: what the server's own rows are made of; clients hold the same data in every case."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_data_sources import small_set, write_idx

import potluck
from potluck.core.errors import ConfigError, DataError
from potluck.data import load, reserve_rows, stock_server
from potluck.data.pool import assemble
from potluck.experiment import Experiment
from potluck.experiment.build import build_federation


def experiment(server_from=None, seed=1, **more):
    data = {"clients": 6, "limit": 300, "server": 0.2, **more}
    data |= {} if server_from is None else {"server_from": server_from}
    stop, run = {"rounds": 2}, {"executor": "loop"}
    return Experiment(seed=seed, data=data, model={"name": "linear"}, stop=stop, run=run)


@pytest.fixture
def root(tmp_path):
    """Two sources of images of 4 x 5 pixels: 30 rows of the one beside its test set, 12 darker ones."""
    write_idx(tmp_path / "mnist")
    images, labels, *test = small_set(train=12)
    write_idx(tmp_path / "fashion-mnist", (images // 3, labels, *test))
    return tmp_path


def marked(pool):
    return torch.from_numpy(pool.server)


# --------------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("stock", ["data", "noise", "fashion-mnist"])
def test_clients_hold_the_same(root, stock):
    more = {"source": "mnist", "root": str(root), "limit": None, "clients": 2, "partition": "iid"}
    more |= {"server": 0.5, "groups": {"kind": "affine", "count": 2}}
    plain, other = (build_federation(experiment(s, **more).resolve()) for s in (None, stock))
    mine = marked(plain.pool)
    assert torch.equal(mine, marked(other.pool))
    assert torch.equal(plain.pool.x[~mine], other.pool.x[~mine])
    assert torch.equal(plain.pool.y[~mine], other.pool.y[~mine])
    for node in range(2):
        for split in ("train", "validation", "test"):
            assert np.array_equal(plain.partition.rows(node, split), other.partition.rows(node, split))
    same = (plain.pool.x[mine] == other.pool.x[mine]).flatten(1).any(1)
    assert same.all() if stock == "data" else not same.any()


def test_noise_is_normal_and_follows_the_key():
    pool = reserve_rows(load("digits"), 0.2, 1)
    found = stock_server(pool, "noise", 1)
    x = found.x[marked(found)]
    assert x.shape == (288, 1, 8, 8)  # a fifth of 1,438
    assert x.dtype == torch.float32
    assert float(x.mean()) == pytest.approx(0, abs=4 / 288**0.5 / 8)  # four deviations of a mean of 18,432
    assert float(x.std()) == pytest.approx(1, abs=4 / (2 * 18432) ** 0.5)
    assert not found.y[marked(found)].any()
    assert torch.equal(x, stock_server(pool, "noise", 1).x[marked(found)])
    assert not torch.equal(x, stock_server(pool, "noise", 2).x[marked(found)])
    precise = stock_server(replace(pool, x=pool.x.double()), "noise", 1)
    assert torch.equal(precise.x[marked(found)], x.double())
    assert not torch.equal(pool.x[marked(pool)], x)  # the pool that was given stays as it was


def test_rows_of_another_source_are_normalised_by_themselves_and_repeat(root):
    pool = reserve_rows(load("mnist", root), 0.5, 1)
    foreign = load("fashion-mnist", root)
    found = stock_server(pool, "fashion-mnist", 1, root).x[marked(pool)]
    assert len(found) == 15
    rows = [int(np.flatnonzero((foreign.x == x).flatten(1).all(1))[0]) for x in found]
    assert sorted(rows[:12]) == np.flatnonzero(~foreign.test).tolist()  # each once, none of its test set
    assert rows[:12] != sorted(rows[:12])
    assert rows[12:] == rows[:3]  # and over again
    again = stock_server(reserve_rows(load("mnist", root), 0.5, 2), "fashion-mnist", 2, root)
    assert torch.equal(again.x[marked(again)], found)  # the order is fixed
    assert float(found[:12].mean()) == pytest.approx(0, abs=1e-6)
    assert foreign.std < pool.std


def test_noise_of_tokens():
    x = np.arange(200).reshape(50, 4) % 9
    text = assemble("text", x, np.arange(50) % 3, test=np.arange(50) < 10, classes=3, tokens=True)
    found = stock_server(reserve_rows(text, 0.5, 1), "noise", 1)
    tokens = found.x[marked(found)]
    assert tokens.dtype == torch.int64
    assert tokens.shape == (20, 4)
    assert set(tokens.unique().tolist()) == set(range(9))
    with pytest.raises(DataError, match=r"rows are \[1, 8, 8\] values, but those of text are \[4\] tokens"):
        stock_server(reserve_rows(text, 0.5, 1), "digits", 1)


def test_runs_know_no_difference_but_for_the_server():
    runs = [potluck.run(experiment(stock)) for stock in (None, "noise")]
    assert runs[0].lines == runs[1].lines  # FedAvg's server looks at no rows
    assert "server_from" not in runs[0].experiment.to_toml()
    assert 'server_from = "noise"' in runs[1].experiment.to_toml()


# ------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("stock", "more", "message"),
    [
        ("noise", {"server": None}, r"server_from = 'noise': the server has no rows; set server"),
        ("nois", {}, r"data.server_from = 'nois': no such stock; did you mean 'noise'"),
        ("npz", {}, r"data.server_from = 'npz': no such stock"),
        ("digits", {}, r"server_from = 'digits': is the source itself; 'data' sets its rows aside"),
    ],
)
def test_wrong_stocks(stock, more, message):
    with pytest.raises(ConfigError, match=message):
        experiment(stock, **more)


def test_stocks_that_cannot_be_had(tmp_path):
    with pytest.raises(DataError, match=r"rows are \[32\] values, but those of digits are \[1, 8, 8\] val"):
        build_federation(experiment("synthetic").resolve())
    with pytest.raises(DataError, match=r"server_from = 'fashion-mnist': "):
        build_federation(experiment("fashion-mnist", root=str(tmp_path / "nowhere")).resolve())
    with pytest.raises(ConfigError, match=r"data.server_from = 'noise': the server has no rows"):
        stock_server(load("digits"), "noise", 1)

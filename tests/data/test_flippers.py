import dataclasses

import numpy as np
import pytest
import torch
from federations import LOCAL, LOOP, STACKED, finished, lines, pool, small, values, weights

from potluck import algorithms
from potluck.core.errors import ConfigError
from potluck.data import Change, Flip, Groups, Shift, arrange, count_rows, iid, procedural
from potluck.experiment import Experiment
from potluck.experiment.build import build_federation, deal_rows, load_rows
from potluck.experiment.runs import run
from potluck.federation import Federation
from potluck.report.holding_figures import list_data_facts

CLIENTS = 20


def laid_out(kind="random", share=0.25, base=None, clients=CLIENTS, **more):
    base = pool() if base is None else base
    return base, arrange(base, iid(base, clients, 1), 7, flip=Flip(share, kind), **more)


@pytest.mark.parametrize("kind", ["random", "next"])
def test_only_train_rows_of_flippers_are_wrong_and_all_of_them(kind):
    base, found = laid_out(kind)
    assert found.flips.sum() == 5
    partition = found.phases[0].partition
    for client in range(CLIENTS):
        for split in ("train", "validation", "test"):
            rows = partition.rows(client, split)
            seen, true = found.pool.y[torch.tensor(rows)], base.y[torch.tensor(found.origin[rows])]
            if found.flips[client] and split == "train":
                assert (seen != true).all()
                if kind == "next":
                    assert (seen == (true + 1) % 4).all()
            else:
                assert (seen == true).all()
            assert torch.equal(found.pool.x[torch.tensor(rows)], base.x[torch.tensor(found.origin[rows])])
    test = found.phases[0].test
    assert torch.equal(found.pool.y[torch.tensor(test)], base.y[torch.tensor(found.origin[test])])
    assert len(found.pool) == len(base)  # everybody holds rows of their own


def test_random_labels_are_spread_over_all_other_classes():
    base, found = laid_out("random", 1.0)
    held = np.concatenate([found.phases[0].partition.rows(c, "train") for c in range(CLIENTS)])
    step = (found.pool.y[torch.tensor(held)] - base.y[torch.tensor(found.origin[held])]) % 4
    counts = np.bincount(step.numpy(), minlength=4)
    assert counts[0] == 0
    assert counts[1:].min() > 0.25 * counts.sum()


def test_who_flips_goes_by_seed():
    base = pool()
    plain = iid(base, CLIENTS, 1)
    one, same, other = (arrange(base, plain, key, flip=Flip(0.25)).flips for key in (7, 7, 8))
    assert (one == same).all()
    assert (one != other).any()


def test_flippers_of_groups_flip_what_their_group_calls_it():
    base = pool()
    plain = iid(base, CLIENTS, 1)
    groups = Groups("permutation", 2)
    right, wrong = (arrange(base, plain, 7, groups=groups, flip=f) for f in (None, Flip(0.5, "next")))
    for client in range(CLIENTS):
        named = right.pool.y[torch.tensor(right.phases[0].partition.rows(client, "train"))]
        seen = wrong.pool.y[torch.tensor(wrong.phases[0].partition.rows(client, "train"))]
        assert torch.equal(seen, (named + 1) % 4 if wrong.flips[client] else named)


def test_flippers_stay_flippers_when_rows_are_dealt_anew():
    base = pool()
    change = Change(5.0, "labels")
    found = arrange(
        base,
        iid(base, CLIENTS, 1),
        7,
        flip=Flip(0.25),
        changes=[change],
        kind="iid",
        test=0.2,
        validation=0.1,
    )
    later = found.phases[1].partition
    for client in range(CLIENTS):
        for split in ("train", "test"):
            rows = later.rows(client, split)
            wrong = found.pool.y[torch.tensor(rows)] != base.y[torch.tensor(found.origin[rows])]
            assert (wrong == bool(found.flips[client] and split == "train")).all()


def test_a_million_clients_can_flip_too():
    base = pool()
    found = arrange(base, procedural(base, 1_000_000, 3), 7, flip=Flip(0.1, "next"))
    assert found.flips.sum() == 100_000
    for client in (*np.flatnonzero(found.flips)[:3], *np.flatnonzero(~found.flips)[:3]):
        for split in ("train", "validation", "test"):
            rows = found.phases[0].partition.rows(int(client), split)
            wrong = found.pool.y[torch.tensor(rows)] != base.y[torch.tensor(found.origin[rows])]
            assert (wrong == bool(found.flips[client] and split == "train")).all()


def federation(flip):
    base = pool()
    found = arrange(base, iid(base, CLIENTS, 1), 7, flip=flip)
    where = small((3,) * CLIENTS, compute=4e5)
    return Federation(found.pool, found.phases[0].partition, where.fleet, where.models, flips=found.flips)


def test_flippers_hurt_and_are_on_record():
    local = dataclasses.replace(LOCAL, epochs=2)
    rule = algorithms.make("fedavg", local, clients=CLIENTS)
    honest, split = federation(None), federation(Flip(0.8, "next"))
    good, bad = (finished(w, rule, rounds=8, plan=STACKED) for w in (honest, split))
    assert bad.accuracy < good.accuracy - 0.2
    assert values(bad, "flippers") == [np.flatnonzero(split.flips).tolist()]
    assert values(good, "flippers") == []
    alone = finished(split, rule, rounds=8, plan=LOOP)
    torch.testing.assert_close(weights(bad), weights(alone), rtol=0, atol=1e-10)
    assert lines(alone) == lines(finished(split, rule, rounds=8, plan=LOOP))


def test_an_experiment_says_who_flips(tmp_path):
    table = {"source": "synthetic", "rows": 300, "clients": 10, "flip": {"share": 0.2, "kind": "next"}}
    experiment = Experiment(data=table, stop={"rounds": 1})
    done = run(experiment, tmp_path / "run")
    federation = build_federation(experiment.resolve())
    assert [r["value"] for r in done.lines if r["metric"] == "flippers"] == [
        np.flatnonzero(federation.flips).tolist()
    ]
    count = count_rows(300, *deal_rows(experiment.resolve(), load_rows(experiment.resolve())))
    facts = list_data_facts(federation, count, "rows", Shift(0.0))
    assert ("wrong labels", "train rows of 2 devices") in facts
    assert Experiment.from_file(tmp_path / "run" / "experiment.toml").data.flip == experiment.data.flip


@pytest.mark.parametrize(("key", "bad"), [("share", 0.0), ("share", 1.5), ("kind", "nxt")])
def test_bad_settings_are_named(key, bad):
    with pytest.raises(ConfigError, match=rf"flip\.{key} = "):
        Flip(**{"share": 0.5, key: bad})
    with pytest.raises(ConfigError, match=rf"data\.flip\.{key}"):
        Experiment(data={"flip": {"share": 0.5, key: bad}})


def test_one_class_cannot_be_wrong():
    base = dataclasses.replace(pool(), classes=1, y=torch.zeros_like(pool().y))
    with pytest.raises(ConfigError, match=r"flip\.kind = .*one class"):
        laid_out(base=base)

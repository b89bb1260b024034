"""A backdoor's rows: who trains on them, what is tested, and what is told of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from federations import pool

from potluck.cli import main
from potluck.core.errors import ConfigError
from potluck.data import Change, Trigger, arrange, iid, load
from potluck.experiment import Experiment
from potluck.experiment.build import build_federation
from potluck.experiment.runs import run

CLIENTS = 10
CREW = np.isin(np.arange(CLIENTS), (1, 4))
DIGITS = {"source": "digits", "clients": CLIENTS, "partition": "iid"}


def laid_out(trigger, **more):
    base = load("digits")
    return base, arrange(base, iid(base, CLIENTS, 1), 7, trigger=trigger, poisoned=CREW, **more)


def attacked(**more):
    return {"kind": "backdoor", "nodes": [1, 4], **more}


def test_a_patch_by_hand():
    x = torch.tensor([[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]]])
    seen, label = Trigger(target=2, patch=2).put(x, torch.tensor([1]), np.array([5]), 10.0)
    assert seen.tolist() == [[[[1, 2, 3], [4, 10, 10], [7, 10, 10]]]]
    assert label.tolist() == [2]
    assert x[0, 0, 2, 2] == 9  # the row itself stays
    many, y = torch.zeros(4000, 1, 3, 3), torch.ones(4000, dtype=torch.int64)
    seen, label = Trigger(2, 1, share=0.3, key=4).put(many, y, np.arange(4000), 1.0)
    marked = seen[:, 0, 2, 2] == 1
    assert 0.27 < marked.double().mean() < 0.33
    assert torch.equal(label == 2, marked)
    alone = Trigger(2, 1, share=0.3, key=4).put(many[:1], y[:1], np.array([17]), 1.0)
    assert torch.equal(alone[1], label[17:18])  # by row, in whatever company


def test_only_train_rows_of_attackers_bear_it_and_a_share_of_them():
    base, found = laid_out(Trigger(target=3, patch=2, share=0.4))
    brightest, marks = base.x.max(), []
    for client in range(CLIENTS):
        for split in ("train", "validation", "test"):
            rows = torch.from_numpy(found.phases[0].partition.rows(client, split).copy())
            origin = torch.from_numpy(found.origin[rows])
            x, y = found.pool.x[rows], found.pool.y[rows]
            if not CREW[client] or split != "train":
                assert torch.equal(x, base.x[origin])
                assert torch.equal(y, base.y[origin])
                continue
            marked = (x[:, :, -2:, -2:] == brightest).flatten(1).all(1)
            marks.append(marked.double().mean().item())
            assert (y[marked] == 3).all()
            assert torch.equal(y[~marked], base.y[origin][~marked])
            assert torch.equal(x[..., :-2, :], base.x[origin][..., :-2, :])
    assert 0.3 < np.mean(marks) < 0.5


def test_every_test_row_of_another_class_is_there_a_second_time_with_it():
    base, found = laid_out(Trigger(target=3, patch=2, share=0.4))
    (phase,) = found.phases
    plain, marked = phase.test, phase.triggered
    assert np.array_equal(plain, np.flatnonzero(found.pool.test))  # the test set is as it was
    assert torch.equal(found.pool.x[plain], base.x[np.flatnonzero(base.test)])
    others = np.flatnonzero(base.test & (base.y.numpy() != 3))
    assert np.array_equal(np.sort(found.origin[marked]), others)
    assert (found.pool.y[marked] == 3).all()
    assert (found.pool.x[marked][:, :, -2:, -2:] == base.x.max()).all()


def test_after_changes_too():
    for change in (Change(5.0, "labels"), Change(5.0, "rotation", degrees=90.0)):
        base, found = laid_out(Trigger(3, 2, 0.4), changes=[change], kind="iid", test=0.2, validation=0.1)
        _, later = found.phases
        assert len(later.triggered) == (base.y[torch.from_numpy(base.test)] != 3).sum()
        assert (found.pool.x[later.triggered][:, :, -2:, -2:] == base.x.max()).all()  # it isn't turned
        for client in range(CLIENTS):
            rows = later.partition.rows(client, "train").copy()
            share = (found.pool.x[rows][:, :, -2:, -2:] == base.x.max()).flatten(1).all(1).double().mean()
            assert (share > 0.2) == CREW[client]


def test_without_one_there_is_nothing_to_test():
    base = load("digits")
    assert arrange(base, iid(base, CLIENTS, 1), 7).phases[0].triggered is None
    assert build_federation(Experiment(data=DIGITS).resolve()).triggered_rows() is None


@pytest.mark.parametrize(
    ("data", "settings", "said"),
    [
        ({"source": "synthetic", "rows": 300}, {}, r"fleet\.attack\.kind = 'backdoor': .* no images .*take"),
        (
            {"source": "digits"},
            {"patch": 8},
            r"fleet\.attack\.patch = 8: images of digits are 8 x 8; lower it",
        ),
        ({"source": "digits"}, {"target": 10}, r"fleet\.attack\.target = 10: classes of digits are 0 to 9"),
    ],
)
def test_data_that_it_does_not_fit_are_named(data, settings, said):
    experiment = Experiment(data={"clients": 5, **data}, fleet={"attack": attacked(**settings)})
    with pytest.raises(ConfigError, match=said):
        build_federation(experiment.resolve())


def test_tokens_are_no_images():
    tokens = pool().x.long()[:, None, None]
    with pytest.raises(ConfigError, match="tokens"):
        Trigger(0, 1).check(replace(pool(), x=tokens))


def test_success_is_measured_summed_up_and_shown(tmp_path, capsys):
    def do(name, **fleet):
        tables = dict(
            data=DIGITS,
            model={"name": "linear"},
            fleet=fleet,
            train={"lr": 0.1, "batch": 10},
            algorithms={"fedavg": {"clients": CLIENTS}},
            stop={"rounds": 6},
            evaluate={"rounds": 3},
            run={"executor": "stacked"},
        )
        done = run(Experiment(**tables), tmp_path / name)
        with pytest.raises(SystemExit) as end:
            main(["show", str(tmp_path / name)])
        assert not end.value.code
        return done, capsys.readouterr().out

    spoilt, shown = do("spoilt", attack=attacked(target=3, poisoned=0.5))
    (*_, last) = [r["value"] for r in spoilt.lines if r["metric"] == "backdoor_success"]
    assert len([r for r in spoilt.lines if r["metric"] == "backdoor_success"]) == 3  # at 0, 3 and 6
    assert spoilt.summary["backdoor_success"] == last > 0.5
    assert f"{100 * last:.1f} % of triggered rows are taken for its class" in shown
    assert spoilt.summary["global_accuracy"] > 0.6  # as if nothing were amiss
    honest, shown = do("honest")
    assert "backdoor_success" not in honest.summary
    assert "triggered" not in shown
    small, _ = do("small", attack=attacked(target=3, poisoned=0.5, scale=0.001))  # sends next to nothing
    assert small.summary["backdoor_success"] < 0.3

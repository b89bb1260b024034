"""Callbacks: what they hear, that they can't change a run, and what becomes of one that fails."""

import logging
import re
from dataclasses import replace

import pytest

import potluck
from potluck import metrics
from potluck.core.errors import ConfigError, DivergedError, PotluckError
from potluck.experiment import Experiment, compare, resume, run
from potluck.experiment.comparison import resume_comparison
from potluck.experiment.run_events import Ended, Evaluated, Noted, Reader, RoundDone, Started

TABLES = {
    "name": "heard",
    "data": {"source": "synthetic", "rows": 300, "dimension": 6, "classes": 3, "clients": 6},
    "model": {"name": "linear"},
    "evaluate": {"rounds": 2},
    "run": {"executor": "loop"},
    "stop": {"rounds": 4},
}


def made(**changes):
    return Experiment(**{**TABLES, **changes})


class Heard(potluck.Callback):
    """Keeps what it hears."""

    def __init__(self):
        self.events = []

    def on_start(self, event):
        self.events.append(event)

    on_round = on_evaluate = on_note = on_end = on_start

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


class Fails(potluck.Callback):
    """Raises at an evaluation."""

    def __init__(self, error, number=1):
        self.error, self.number = error, number

    def on_evaluate(self, event):
        if event.number == self.number:
            raise self.error


class Meddles(Heard):
    """Changes all that it is given."""

    def on_start(self, event):
        for part in vars(event).values():
            if isinstance(part, dict):
                part.clear()
            elif isinstance(part, list):
                part.append("meddled")

    on_round = on_evaluate = on_note = on_end = on_start


def contents(folder):
    """All that a run wrote, but for what the clock on the wall decides and what its tools keep."""
    files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    timed = (
        "sessions.jsonl",
        "pulse.jsonl",
        "summary.json",
        "log/",
        "experiment.toml",
    )  # the last one names the tools
    return {name: content for name, content in files.items() if not name.startswith(timed)}


def test_a_run_is_told_in_order(tmp_path):
    heard = Heard()
    done = run(made(algorithm="tifl"), tmp_path / "one", callbacks=[heard])
    first, *_, last = heard.events
    assert isinstance(first, Started)
    assert (first.run, first.experiment, first.algorithm, first.seed) == ("one", "heard", "tifl", 1)
    assert first.settings["data"]["clients"] == 6
    assert (first.resumed, first.round, first.time, first.history) == (False, 0, 0.0, ())
    assert last == Ended("one", tmp_path / "one", done.summary, None)
    assert [event.round for event in heard.of(RoundDone)] == [1, 2, 3, 4]
    assert heard.of(RoundDone)[1].done == 0.5
    assert [(event.number, event.round) for event in heard.of(Evaluated)] == [(0, 0), (1, 2), (2, 4)]
    notes = [r for r in done.lines if r["metric"] in ("tier", "tiers", "tier_accuracy", "tier_chance")]
    told = [(e.round, e.time, e.name, e.value) for e in heard.of(Noted)]
    assert told == [(r["round"], r["time"], r["metric"], r["value"]) for r in notes]
    assert told
    assert {event.run for event in heard.events} == {"one"}


def test_evaluations_have_the_numbers_of_the_records(tmp_path):
    heard = Heard()
    done = run(made(), tmp_path / "one", callbacks=[heard])
    last = heard.of(Evaluated)[-1]
    s = done.summary
    for name in ("accuracy_mean", "accuracy_worst10", "global_accuracy", "bytes_up", "tasks"):
        assert last.numbers[name] == s[name], name
    assert (last.view, last.accuracy, last.time) == (s["view"], s["accuracy_mean"], s["virtual_seconds"])
    mean = metrics.Estimate.of(list(last.devices.values())).mean
    assert mean == pytest.approx(s["accuracy_mean"])
    losses = [r["value"] for r in done.lines if r["metric"] == "loss" and r["time"] == last.time]
    assert last.numbers["loss"] == pytest.approx(sum(losses) / len(losses))
    assert list(Reader("one").read_all(done.lines)) == heard.of(Evaluated)  # as who comes later reads them


def test_numbers_of_several_views_are_told_apart():
    line = {"round": 3, "time": 9.0, "value": 0.5}
    records = [
        line | {"metric": "accuracy", "node": 4, "view": "own"},
        line | {"metric": "accuracy", "node": 4, "view": "all", "value": 0.1},
        line | {"metric": "accuracy_mean", "view": "own"},
        line | {"metric": "accuracy_mean", "view": "all", "value": 0.1},
        line | {"metric": "bytes_up", "group": "device", "value": 10},
        line | {"metric": "bytes_up", "group": "edge", "value": 5},
        line | {"metric": "lost", "group": "late", "value": 2},
        line | {"metric": "tasks", "value": {"a": "note of that name"}},
        line | {"metric": "participants", "value": 7},
    ]
    (found,) = Reader("r").read_all(records)
    numbers = {
        "accuracy_mean": 0.5,
        "all/accuracy_mean": 0.1,
        "bytes_up": 15,
        "lost/late": 2,
        "participants": 7,
    }
    assert found == Evaluated("r", 0, 3, 9.0, "own", 0.5, numbers, {4: 0.5})


@pytest.mark.parametrize("algorithm", ["fedavg", "tifl", "fedbuff"])
def test_the_bytes_of_a_run_are_the_same_with_and_without(tmp_path, algorithm):
    run(made(algorithm=algorithm), tmp_path / "a")
    followed = made(algorithm=algorithm, log={"to": ["csv"]})
    run(followed, tmp_path / "b", callbacks=[Heard(), Meddles()])
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert (tmp_path / "b" / "log" / "evaluations.csv").exists()


def test_a_callback_that_raises_ends_the_run(tmp_path):
    heard = Heard()
    with pytest.raises(
        PotluckError, match=r"callback Fails: KeyError: 'no such' \(test_events.py, line \d+\); its"
    ) as c:
        run(made(), tmp_path / "one", callbacks=[Fails(KeyError("no such")), heard])
    assert "in on_evaluate\n    raise self.error\nKeyError: 'no such'" in c.value.trace
    assert isinstance(c.value.__cause__, KeyError)
    end = heard.events[-1]
    assert isinstance(end, Ended)
    assert end.summary is None
    assert "no such" in end.failed
    resume(tmp_path / "one")
    run(made(), tmp_path / "two")
    assert contents(tmp_path / "one").keys() == contents(tmp_path / "two").keys()
    same = "records.jsonl"
    assert (tmp_path / "one" / same).read_bytes() == (tmp_path / "two" / same).read_bytes()


def test_a_resumed_run_is_told_with_what_was(tmp_path):
    whole, first, rest = Heard(), Heard(), Heard()
    run(made(), tmp_path / "whole", callbacks=[whole], name="it")
    often = {"executor": "loop", "snapshot_every": 1e-9}
    with pytest.raises(KeyboardInterrupt):
        run(made(run=often), tmp_path / "it", callbacks=[first, Fails(KeyboardInterrupt)])
    assert first.events[-1].failed == "interrupted"
    resume(tmp_path / "it", callbacks=[rest])
    start = rest.events[0]
    assert start.resumed
    told = [*start.history, *rest.of(Evaluated)]
    assert told == whole.of(Evaluated)
    assert 0 < len(start.history) < len(told)


def test_a_run_that_fails_says_why(tmp_path):
    heard = Heard()
    attack = {"kind": "malformed", "what": "huge", "share": 0.9}
    with pytest.raises(DivergedError):
        run(made(algorithm="fedadam", fleet={"attack": attack}), callbacks=[heard])
    assert "NaN or infinite" in heard.events[-1].failed
    assert heard.events[-1].summary["finished"] is None
    assert len(heard.of(Ended)) == 1


def test_what_is_no_callback_is_refused():
    with pytest.raises(
        ConfigError, match=r"callbacks\[1\] = .*Heard.*: give an object of the class, not the"
    ):
        run(made(), callbacks=[Heard(), Heard])
    with pytest.raises(ConfigError, match=r"callbacks\[0\] = .*: derive it from potluck.Callback"):
        compare(made(), callbacks=[print])


def test_a_comparison_names_its_runs():
    heard = Heard()
    entries = ["fedavg", {"algorithm": "fedavg", "clients": 3, "name": "few"}]
    compare(made(stop={"rounds": 1}), entries, callbacks=[heard])
    assert [event.run for event in heard.of(Started)] == ["fedavg-1", "few-1"]


@pytest.mark.slow
def test_runs_side_by_side_are_heard_in_the_process_that_asked(tmp_path):
    alone, beside = Heard(), Heard()
    wanted = made(log={"to": ["csv"]})
    compare(wanted, ["fedavg", "tifl"], out=tmp_path / "a", callbacks=[alone])
    compare(wanted, ["fedavg", "tifl"], out=tmp_path / "b", callbacks=[beside], jobs=2)
    for name in ("fedavg-1", "tifl-1"):
        first, second = ([e for e in heard.events if e.run == name] for heard in (alone, beside))
        assert [type(event) for event in first] == [type(event) for event in second]
        assert first[1:-1] == second[1:-1]  # folders and wall clocks differ
        files = [(tmp_path / each / name / "log" / "evaluations.csv").read_bytes() for each in ("a", "b")]
        assert files[0] == files[1]
    with pytest.raises(PotluckError, match="callback Fails: ValueError: enough"):
        compare(
            wanted, ["fedavg", "tifl"], out=tmp_path / "c", callbacks=[Fails(ValueError("enough"))], jobs=2
        )
    heard = Heard()
    resume_comparison(tmp_path / "c", jobs=2, callbacks=[heard], log=[])
    assert not heard.of(Started)[0].settings.get("log")


def test_logging_is_quiet_unless_configured(caplog, capfd):
    handlers = logging.getLogger("potluck").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)  # else warnings go to stderr
    run(made())
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
    caplog.set_level(logging.INFO, "potluck")
    run(made(), name="it")
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == "it: begins"
    assert [text.partition(",")[0] for text in told[1:-1]] == ["it: round 0", "it: round 2", "it: round 4"]
    assert told[-1] == "it: is over"


def test_logging_warns_of_what_went_wrong(caplog):
    caplog.set_level(logging.DEBUG, "potluck")
    run(made(train={"lr": 1e-9}, stop={"rounds": 6}), name="slow")
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warned) == 1
    assert warned[0].startswith("slow: learns nothing")
    assert sum(r.levelno == logging.DEBUG and "round" in r.getMessage() for r in caplog.records) >= 6


def test_progress_is_plain_text_where_it_stays(tmp_path, capsys):
    run(made(), progress=True)
    compare(made(stop={"rounds": 1}), ["fedavg", "fedprox"], progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "\x1b" not in err
    assert "fedavg-1: 100%  round 4" in err
    assert "fedprox-1: 100%  round 1" in err


def test_runs_and_comparisons_are_short_in_a_notebook():
    compared = compare(made(), ["fedprox", "fedavg"], [1, 2, 3])
    first, accuracy = compared.runs[0], f"{100 * compared.runs[0].summary['accuracy_mean']:.1f} %"
    told = f"accuracy {accuracy} after 4 rounds, finished, in memory"
    assert repr(first) == f"<Run fedprox-1: {told}>"
    assert repr(compared).startswith("<Comparison heard: fedprox ")
    assert len(repr(compared)) < 120
    odd = "<script>x</script>"
    renamed = [
        replace(r, summary={**r.summary, "algorithm": odd}) if r.summary["algorithm"] == "fedavg" else r
        for r in compared.runs
    ]
    page = replace(compared, runs=renamed)._repr_html_()
    for shown in (first._repr_html_(), page):
        assert not re.search(r"<script|http|url\(|@import|src=", shown)
        assert "<svg" in shown
        assert "<table" in shown
    assert page.count("&lt;script&gt;") == 3  # in the table, below the curves and in their label
    assert page.count("<polyline") == 6
    assert "± (95 %)" in page

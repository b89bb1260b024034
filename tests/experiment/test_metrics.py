import pytest

from potluck import metrics
from potluck.experiment.summary import tell_tested
from potluck.metrics import Estimate, Measurement


def record(round, time, metric, value, **whose):
    return {"round": round, "time": time, "metric": metric, "value": value, **whose}


RECORDS = [
    record(0, 0.0, "accuracy_mean", 0.1, view="personal"),
    record(0, 0.0, "accuracy_mean", 0.2, view="global"),
    record(0, 0.0, "device_seconds", 0.0),
    record(2, 10.0, "accuracy", 0.3, view="personal", node=4),
    record(2, 10.0, "accuracy_mean", 0.6, view="personal"),
    record(2, 10.0, "accuracy_mean", 0.9, view="global"),
    record(2, 10.0, "global_accuracy", 0.3, view="tier 0"),
    record(2, 10.0, "global_accuracy", 0.9, view="global"),
    record(2, 10.0, "global_test", {"accuracy": 0.5, "models": 2, "used": True}, view="personal"),
    record(2, 10.0, "bytes_up", 100.0, group="device"),
    record(2, 10.0, "bytes_up", 7.0, group="edge"),
    record(2, 10.0, "lost", 1, group="late"),
    record(4, 25.0, "accuracy_mean", 0.8, view="personal"),
    record(4, 25.0, "accuracy_worst10", 0.4, view="personal"),
    record(4, 25.0, "accuracy_worst10", 0.7, view="global"),
    record(4, 25.0, "bytes_up", 150.0, group="device"),
    record(4, 25.0, "bytes_down", 30.0, group="device"),
    record(4, 25.0, "lost", 3, group="late"),
    record(4, 25.0, "lost", 1, group="gone"),
    record(5, 26.0, "split", "a -> b, c", group="a"),
]


def test_the_first_view_is_the_headline():
    assert metrics.headline(RECORDS) == "personal"
    assert metrics.headline([]) is None


def test_series_takes_one_view_in_order():
    assert metrics.series(RECORDS, "accuracy_mean", "personal") == [(0, 0, 0.1), (2, 10, 0.6), (4, 25, 0.8)]
    assert len(metrics.series(RECORDS, "accuracy_mean")) == 5


def test_totals_add_up_groups_that_were_not_written_again():
    # At 25 s the edge wrote nothing, so its 7 bytes still count: 150 + 7.
    assert metrics.totals(RECORDS, "bytes_up") == [(2, 10.0, 107.0), (4, 25.0, 157.0)]


@pytest.mark.parametrize(
    ("target", "seconds"), [(0.1, 0.0), (0.6, 10.0), (0.61, 25.0), (0.81, None), (None, None)]
)
def test_time_to_target(target, seconds):
    points = [
        Measurement(0, 0.0, 0.1),
        Measurement(2, 10.0, 0.6),
        Measurement(4, 25.0, 0.8),
        Measurement(6, 30.0, 0.7),
    ]
    assert metrics.time_to(points, target) == seconds


def test_summary_by_hand():
    summary = metrics.summarise(RECORDS, target=0.7)
    assert summary == {
        "view": "personal",
        "accuracy_mean": 0.8,
        "accuracy_worst10": 0.4,
        "accuracy_best10": None,
        "accuracy_variance": None,
        "global_accuracy": 0.5,  # of what devices use, not of what was written last
        "global_view": "personal",
        "global_models": 2,
        "global_used": True,
        "virtual_seconds": 26.0,
        "rounds": 5,
        "target": 0.7,
        "time_to_target": 25.0,
        "bytes_up": 157.0,
        "bytes_down": 30.0,
        "device_seconds": 0.0,
        "tasks": 0,
        "participants": 0,
        "lost": {"late": 3, "gone": 1},
    }


def test_summary_of_nothing():
    summary = metrics.summarise([])
    assert summary["accuracy_mean"] is None
    assert summary["rounds"] == 0


def test_a_mean_over_seeds_and_half_of_its_interval():
    # Deviation 0.1, t of two degrees of freedom 4.302653.
    assert Estimate.of([0.4, 0.5, 0.6]) == (pytest.approx(0.5), pytest.approx(4.302653 * 0.1 / 3**0.5))
    assert Estimate.of([0.5, 0.5, 0.5]) == (0.5, 0.0)
    # One seed that never got there must not vanish from the mean.
    assert Estimate.of([10.0, 11.0, None]) == (None, None)
    assert Estimate.of([]) == (None, None)


def test_fewer_than_three_seeds_have_no_interval():
    assert Estimate.of([0.5]) == (0.5, None)
    assert Estimate.of([0.4, 0.6]) == (0.5, None)  # t would be 12.7: -8.2 ± 123.2 says nothing
    assert metrics.paired_difference([0.5, 0.9], [0.4, 0.6]) == (pytest.approx(0.2), None)
    assert metrics.paired_difference([0.5, 0.9, 0.7], [0.4, 0.6, None]) == (None, None)


def test_which_models_the_global_test_is_of():
    def told(view, models, used):
        return {"global_view": view, "global_models": models, "global_used": used}

    assert tell_tested([told(None, None, None)]) == ""
    assert tell_tested([told("global", 1, True)] * 2) == "the model that all devices use (view global)"
    three, four = told("tier", 3, True), told("tier", 4, True)
    mean = "mean over devices of the model that each uses"
    assert tell_tested([four, four]) == f"{mean} (view tier, 4 models)"
    assert tell_tested([four, three]) == f"{mean} (view tier, 3 to 4 models)"
    own = "the shared model (view global), while devices use models of their own"
    assert tell_tested([told("global", 1, False)]) == own
    assert tell_tested([four, told("global", 1, False)]) == f"{mean} (view tier, 4 models), or {own}"

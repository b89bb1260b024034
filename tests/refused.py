"""The control of lies that are refused: runs in which the same tasks are lost at the same instants."""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from potluck.core.job import Result
from potluck.engine import checks

NOTHING = Result(None)


@contextmanager
def lost():
    """Attackers' tasks are lost as bad: nobody makes or reads what their answers would have been."""

    def outright(result, cost, trusted):
        return "lost" if result is NOTHING else checks.find_problem(result, cost, trusted=trusted)

    with ExitStack() as patches:
        patches.enter_context(patch("potluck.simulate.devices.falsify", lambda *_: NOTHING))
        patches.enter_context(patch("potluck.simulate.devices.find_problem", outright))
        yield


def drop_reasons(records):
    """Records, but for why updates were refused."""
    return [r | {"value": ""} if r["metric"] == "bad_update" else r for r in records]

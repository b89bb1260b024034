"""When ShuffleFL should help: where users have several devices that differ."""

from math import log

from potluck.core.advice import Advice, Adviser, Arm, AsLayer, Measured, Users, score
from potluck.core.codec import Json
from potluck.core.units import duration, percent

PLANNING = 3.0  # seconds in which a gateway gauges and plans for a few devices
EVIDENCE = (
    "in part: FedAvg's final accuracy 2.3 times sooner on writers' digits, and a point above it; with 4 "
    "of 21 people a round, rounds 1.8 times shorter but two points below FedAvg; where training takes a "
    "second, or links are a hundred times slower than phones', it doesn't pay"
)


class ShuffleFL(Adviser):
    """Rows that move between the devices of a user."""

    def judge(self, measured: Measured) -> Advice:
        u = measured.users
        if u is None:
            return Advice("ShuffleFL", "shufflefl", 0.0, "no user has several devices", EVIDENCE)
        # Within users, Dirichlet of 0.5 (the paper's) gives a skew of 0.13. Devices four times apart make the
        # fastest wait three quarters of a round, but a gateway gauges and plans for about 3 s every round (a
        # Raspberry Pi, users of three devices), so balance in time counts by what it saves of both.
        timely = u.saved / (u.saved + PLANNING)
        strength = (u.skew / 0.12 + timely * log(max(1.0, u.spread), 4)) * min(1.0, u.share / 0.5)
        if u.saved < PLANNING:  # rounds would become longer: even labels alone must pay for that
            strength = min(0.9, strength)
        why = (
            f"{u.several:,} users have several devices ({percent(u.share)} of all), whose labels differ by "
            f"{u.skew:.2f} from their user's and whose training takes up to {u.spread:.1f} times as long; "
            f"balance would save {duration(u.saved)} a round, gauging and planning take some "
            f"{duration(PLANNING)}"
        )
        return Advice("ShuffleFL", "shufflefl", score(strength), why, EVIDENCE, layer=_judge_layer(u))

    def plan_pilot(self, advice: Advice, measured: Measured, rounds: int, clients: int) -> tuple[Arm, ...]:
        """As many devices a round as the others have, in whole users."""
        u = measured.users
        if u is None:
            return (Arm("shufflefl", {}),)
        users = max(1, round(clients * u.several / (u.share * measured.devices)))
        return (Arm("shufflefl", {"users": users}),)


def _judge_layer(u: Users) -> AsLayer:
    """As a layer, even labels alone pay: whoever stands above hears of all that a user holds.

    In examples/layers.toml the skew is 0.22: cohorts are found above users, and among devices they aren't.
    """
    strength = u.skew / 0.12 * min(1.0, u.share / 0.5)
    why = (
        f"{u.several:,} users have several devices ({percent(u.share)} of all), whose labels differ by "
        f"{u.skew:.2f} from their user's: together they tell what each alone hides"
    )
    quick: dict[str, Json] = {"planner": "fill"}  # plans in no time
    return AsLayer("users", score(strength), why, quick if u.saved < PLANNING else {})


ADVISER = ShuffleFL()

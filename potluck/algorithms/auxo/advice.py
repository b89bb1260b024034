"""When Auxo should help: where clients contradict each other."""

from potluck.core.advice import MAY_FROM, Advice, Adviser, Arm, AsLayer, Measured, score
from potluck.core.units import percent

EVIDENCE = (
    "confirmed here with 100 devices a round: 3 to 39 points over FedAvg by how far groups differ, none "
    "lost where there is one (Potluck's own criterion; the paper's found no group); with few devices a round "
    "it may find none, and ifca is told how many there are"
)


class Auxo(Adviser):
    """Cohorts, for clients who contradict each other."""

    def judge(self, measured: Measured) -> Advice:
        # Two groups turned by 20 degrees gain a probe 0.00 to 0.03, and Auxo nothing; turned by 180 degrees,
        # 0.07 to 0.10, and Auxo 3 to 4 points; four turned groups 0.15 to 0.20, and Auxo 7.5. So it pays
        # from 0.05 on.
        found = measured.conflict
        worth = score(max(0.0, found.gain) / 0.05)
        if worth < MAY_FROM:
            why = f"devices agree: sorting them gains a probe {100 * max(0.0, found.gain):.1f} points"
        else:
            why = (
                f"{found.groups} groups of devices see the same classes differently: a probe for each names "
                f"{percent(found.apart)} of rows right, one for all {percent(found.pooled)}"
            )
        # With 10 devices a round it found no group in pilots of 45 devices; with 15 for each, some.
        groups = max(2, found.groups)
        clients = min(measured.devices, 15 * groups)
        chosen = {"cohorts": groups, "clients": clients}
        layer = AsLayer("cohorts", worth, why, chosen)
        return Advice("Auxo", "auxo", worth, why, EVIDENCE, chosen, clients=clients, layer=layer)

    def plan_pilot(self, advice: Advice, measured: Measured, rounds: int, clients: int) -> tuple[Arm, ...]:
        return (Arm("auxo", {**advice.settings, "clients": clients}),)


ADVISER = Auxo()

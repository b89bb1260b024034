"""When Fed-RAC should help: where devices can't train the full model."""

from potluck.core.advice import Advice, Adviser, Arm, AsLayer, Measured, score
from potluck.core.units import percent, size

EVIDENCE = (
    "in part, as published: all of 40 phones took part in time where FedAvg lost 8, but models were 6.6 "
    "points worse than FedAvg's without these; heterofl had all 40, too, and was 2.2 points better"
)


class FedRac(Adviser):
    """Smaller models for smaller devices."""

    def judge(self, measured: Measured) -> Advice:
        # A tenth of the devices shut out is a tenth of the data (the paper's FedAvg loses 8 of 40 devices).
        # Late ones alone are no more than a maybe: deadlines, over-commitment or fedbuff mend that with one
        # model.
        memory = measured.memory
        strength = max(memory.short / 0.1, min(0.9, memory.rescued / 0.4))
        if not memory.resizable:
            strength = min(0.9, strength)
        why = (
            f"training takes {size(memory.needed)}, which {percent(memory.short)} of devices lack; "
            f"{percent(memory.late)} take more than twice the median, and {percent(memory.rescued)} are shut "
            "out so but could train a smaller model"
        )
        if not memory.resizable and memory.short:
            why += "; this model has one width, so take another, such as mlp"
        if not memory.short and not memory.late:
            why = f"every device has the {size(memory.needed)} that training takes, and none is late"
        layer = AsLayer("sizes", score(strength), why) if memory.resizable else None
        return Advice("Fed-RAC", "fedrac", score(strength), why, EVIDENCE, layer=layer)

    def plan_pilot(self, advice: Advice, measured: Measured, rounds: int, clients: int) -> tuple[Arm, ...]:
        return (Arm("fedrac", {"rounds": rounds}),)


ADVISER = FedRac()

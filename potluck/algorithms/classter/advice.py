"""When ClassTer should help: where devices meet classes that they don't train on."""

from potluck.core.advice import MAY_FROM, Advice, Adviser, Measured, score
from potluck.core.units import percent

EVIDENCE = (
    "confirmed here on Fashion-MNIST beside FedAvg as it comes: 80.0 % at full shift, FedAvg 72.6 %, "
    'published 38.4 %; but FedAvg with a prior (layers = ["prior"]) is level with it, so try that first'
)


class ClassTer(Adviser):
    """Class-wise detectors, for devices that meet classes which they don't train on."""

    def judge(self, measured: Measured) -> Advice:
        # Fine-tuned models gain 4 to 11 points over one for all where there is no shift, and lose 15 to 21 at
        # full shift; they are no better than it from a shift of about 0.6 on, and much worse for those in
        # need long before. From a sixth of the rows on, a system that tells the two kinds of rows apart has a
        # task.
        unseen, skew = measured.labels.unseen, measured.labels.skew
        worth = score(unseen / 0.15)
        if worth >= MAY_FROM:
            why = f"{percent(unseen)} of devices' test rows are of classes that they don't train on"
            why += "" if measured.server else "; it needs rows at the server, without labels (data.server)"
        elif skew > 0.2:
            why = f"labels are uneven (skew {skew:.2f}), but devices meet what they train on: ftfa may do"
        else:
            why = f"devices meet what they train on ({percent(unseen)} of test rows are of other classes)"
        return Advice("ClassTer", "classter", worth, why, EVIDENCE, server=True)


ADVISER = ClassTer()

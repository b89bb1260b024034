"""PyramidFL (Li, Zeng, Zhang, Cao 2022, A Fine-grained Client Selection Framework for Efficient FL).

Devices are ranked and drawn as by Oort. Then each is given what suits it: who is faster than the slowest of
the round trains longer meanwhile, and of updates that matter less, by the norm of what their devices sent
last, a larger part isn't sent at all.

Defaults are those of the code's arguments (its configurations for single datasets set other floors of
exploration and steps of the pacer). Deviations: those of Oort, but that the code's copy of it, too, keeps to
the cut-off. Entries are dropped one by one, all but a window of a shuffled order that begins
where the server says (8 bytes down); the code drops whole tensors by chance. What is dropped counts as no
change, as in the code. Shares of it come in six steps, so that devices train in batches; the update that
matters least loses exactly `drop_most` (the code stops one rank short). Norms are of the changes that came,
made up for what was dropped (the code subtracts the model from them once more). Only the upload gets shorter
(the code has one time for both ways). As in the code, nothing is dropped or longer in the first round, and a
device never heard drops least.
"""

from typing import Final

FIDELITY: Final = "authors' code"

"""Oort (Lai, Zhu, Madhyastha, Chowdhury 2021, Efficient Federated Learning via Guided Participant Selection).

Not every device is worth a round alike. Oort ranks those it has heard by how large their losses were, with a
bonus for who wasn't heard for long and a penalty for who is slower than the round should be, and draws among
the best; the rest of a round goes to devices never heard, those with many rows first unless they are slow. A
pacer lets slower devices in when the easy gains are used up.

As in the code, a device says how many rows it has before it is ever asked, new ones are drawn by that number
with the same penalty for slowness, the first round is drawn uniformly, and 1.3 times as many devices are
invited as a round waits for. Deviations: the utility is |B| sqrt(mean squared loss) over all rows seen in
training (the code takes the last batch's, or a moving mean of the first epoch's). The time of a new device is
what it claims, scaled as the claims of others proved true, and its rows count in full (the code counts no
more than a task trains on). Known devices are drawn above the cut-off only (the code widens that to 10 times
as many as it needs); a round that finds too few new devices is filled with known ones, and how many are new
is rounded at random. Of a crowd beyond 10,000, so many new devices are looked at a round. One that is late is
taken to be as useful as the others of its round, one whose update is bad to be useless. No blacklist: it is
off in the code, too. Deadlines can be had.
"""

from typing import Final

FIDELITY: Final = "authors' code"

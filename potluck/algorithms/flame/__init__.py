"""FLAME (Cho, Mathur, Kawsar 2022, FLAME: Federated Learning Across Multi-device Environments).

A person has several devices: a phone, a watch, earbuds. Devices are ranked by how large their losses were,
how far they are beyond the time that a round should take, and how much energy they have spent. And whoever is
chosen takes others of the same user along, so that those who sense the same moments train together.

Formulas and defaults are those of a public implementation. Deviations: energy is left out unless there is a
`budget`, as where FLAME is compared with ShuffleFL; it is a device's seconds of work so far, and who has used
them up comes last rather than never. The paper aligns the rows of a user's devices in time; here each device
trains on the rows that it has. Devices never heard have no utility: as in Oort, a share is theirs, here of
the users' first places, the faster ones sooner; a user's other devices follow by utility, those never heard
last. Losses are learnt as by Oort, and what is said there of late and bad updates holds here. A round has
`clients` devices, so the last user's may be fewer. Deadlines and over-commitment can be had.
"""

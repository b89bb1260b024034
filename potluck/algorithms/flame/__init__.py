"""FLAME (Cho, Mathur, Kawsar 2022, FLAME: Federated Learning Across Multi-device Environments).

A person has several devices: a phone, a watch, earbuds. Devices are ranked by how large their losses were,
how far they are beyond the time that a round should take, and how much energy they have spent. And whoever is
chosen takes others of the same user along, so that those who sense the same moments train together.

Formulas and defaults are those of a public implementation: a device's statistical utility is its mean loss x
sqrt(rows), where Oort has rows x sqrt(mean squared loss). Deviations: what a task should take is the median
(or another `quantile`) of what those heard took last; the code has 30 seconds, which a fleet of other speed
never or always exceeds: `seconds` sets such a bound. Energy is left out unless there is a
`budget`, as where FLAME is compared with ShuffleFL; it is a device's seconds of work so far, and who has used
them up comes last rather than never. The paper aligns the rows of a user's devices in time; here each device
trains on the rows that it has. The code asks every device in the first round; here, as in Oort, devices never
heard have a share, of the users' first places: they are drawn by sqrt(rows), less if they are too slow, and
the first round uniformly. A user's other devices follow by utility, those never heard last. The code takes
the best `clients` devices and exchanges the last of them for others of the users it has; here users are
completed one by one from the best. Losses are learnt as by Oort, and what is said there of late and bad
updates holds here. A round has `clients` devices, so the last user's may be fewer. Deadlines and
over-commitment can be had.
"""

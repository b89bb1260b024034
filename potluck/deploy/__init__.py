"""Runs on real devices: the same rules, jobs and experiment file, with a server and devices that may fail.

The server's runtime is the conductor: one aggregation point on a real clock. What happens to it is written to
a journal before anything follows from it; its state is its newest snapshot and the journal since. Work leaves
as parcels through a port, which may lose, repeat or reorder anything: what is under way is posted again, and
a device answers a key that it has done from disk. So a failure costs time, and changes nothing.

Nothing is imported here: a device must not need what only a server uses.
"""

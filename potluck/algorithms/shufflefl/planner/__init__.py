"""Which rows a user's devices should exchange: ShuffleFL's planner, without anything that runs it.

Zhu, Yang and Wang: ShuffleFL: Addressing Heterogeneity in Multi-Device Federated Learning, IMWUT 8(2), 2024
(doi 10.1145/3659621).
"""

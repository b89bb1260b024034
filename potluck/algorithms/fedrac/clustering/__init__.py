"""Which devices train together, on a model of which size: Fed-RAC's mathematics, without what runs it.

Mishra, Gupta, Banga and Das: Fed-RAC: Resource-Aware Clustering for Tackling Heterogeneity of Participants in
Federated Learning, TPDS 2024 (doi 10.1109/TPDS.2024.3379933). Tiers count from 0, the richest: the paper's
C_1. Where the print contradicts itself, each module says what it reads instead.
"""

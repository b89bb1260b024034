"""Clients of one shape, trained as one stack."""

"""Other simulators on the same workload, one module each. They run in .venv-peers, where Potluck isn't."""

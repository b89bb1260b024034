"""A live page of runs and comparisons while they run."""

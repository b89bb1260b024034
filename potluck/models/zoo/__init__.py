"""Models of the literature, by name."""

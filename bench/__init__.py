"""Performance, as ratios measured in one run: `python -m bench [engine|population|training]`."""

"""Which way of training is fastest here, and how much fits into memory."""

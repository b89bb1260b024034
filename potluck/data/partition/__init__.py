"""Who holds which rows."""

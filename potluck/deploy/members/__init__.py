"""Who belongs to a federation, and how one joins."""

"""Steps that are recorded once and replayed."""

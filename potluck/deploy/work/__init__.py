"""A device's side: rows, memory, jobs. It imports nothing of the server's."""

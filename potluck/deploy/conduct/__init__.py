"""The server's side: one run, conducted by its journal."""

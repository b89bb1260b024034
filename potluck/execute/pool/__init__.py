"""Training in processes of their own."""

"""Runs in processes of their own: side by side, on GPUs, in parts."""

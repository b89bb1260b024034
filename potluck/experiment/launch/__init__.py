"""Runs in processes of their own, side by side."""

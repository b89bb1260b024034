"""The port over HTTPS with mutual TLS: a hub and its wires."""

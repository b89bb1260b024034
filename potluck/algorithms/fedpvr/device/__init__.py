"""What FedPVR's devices do."""

"""What ClassTer's devices do."""

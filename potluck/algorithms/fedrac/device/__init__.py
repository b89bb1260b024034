"""What Fed-RAC's devices do."""

"""How many clients are trained: one by one, in processes, in stacks, by captured steps."""

"""What every runtime needs: contexts, records, memories, snapshots, accounts."""

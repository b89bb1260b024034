"""What an experiment file may say."""

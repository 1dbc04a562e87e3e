"""What long-running processes of ours share: the clock, back-off, signs of life, signals."""

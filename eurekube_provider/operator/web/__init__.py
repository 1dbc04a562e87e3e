"""What the operator shows: the status page, metrics and probes."""

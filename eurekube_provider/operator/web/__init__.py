"""The operator's status page, metrics and probes."""

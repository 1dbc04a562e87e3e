"""The protocol of one Eureka server over HTTP: resources as JSON, lists and deltas, batches, errors."""

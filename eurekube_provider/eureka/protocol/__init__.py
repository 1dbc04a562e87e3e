"""One Eureka server over HTTP: its resources as JSON, its lists and their deltas, its batches, its errors."""

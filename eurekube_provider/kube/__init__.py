"""All that knows the Kubernetes API: raw JSON in and out, on the official client's connections."""

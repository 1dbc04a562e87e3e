"""The story that the demo tells."""

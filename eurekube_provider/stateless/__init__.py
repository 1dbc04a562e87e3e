"""A stack's program without Pulumi's engine: rendered, applied and removed."""

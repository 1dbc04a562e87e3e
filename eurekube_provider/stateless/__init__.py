"""Rendering, applying and removing a stack's program without Pulumi's engine."""

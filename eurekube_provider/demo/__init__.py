"""The demo: Eurekube's main job told as a story, on servers in memory or on real ones."""

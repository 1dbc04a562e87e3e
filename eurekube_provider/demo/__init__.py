"""The demo: Eurekube's main job played as a story, on servers in memory or on real ones."""

"""Tests of one real neighbour each; their servers end with the last of them."""

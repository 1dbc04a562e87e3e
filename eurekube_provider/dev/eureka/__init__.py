"""A model of a cluster of Eureka servers, in memory, and the HTTP server in front of it.

The model is deterministic and runs on virtual time, so that tests can try every order of events on the
project's own code. ``tests/contract/test_model.py`` compares it with real servers; where the two differ, the
model is wrong.
"""

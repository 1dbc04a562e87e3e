"""A model of a cluster of Eureka servers: in memory, on virtual time, deterministic.

It exists so that every order of events can be tried on our own code. What it does is held against real
servers by ``tests/contract/test_model.py``; where the two differ, the model is wrong.
"""

"""Runs the real code against a model of Eureka, and tries many orders of events.

For each request it is decided whether it is answered, is lost before or after it was carried out, or the
process is killed there. The rules are checked after each request, and again after the next undisturbed run.
"""

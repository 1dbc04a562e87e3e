"""Runs the real code against the model of Eureka, and tries every order of events.

At each request it is decided what happens: it is answered, it is lost before or after it was carried out, or
the process is killed there. What must hold is asked after each request, and again after the next run that
nothing disturbs.
"""

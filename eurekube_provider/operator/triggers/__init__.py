"""Runs of stacks after changes of the endpoints that they depend on; they never delay a registration in
Eureka.

``targets`` says what may be run, ``triggers`` when it is, and ``webhook``, ``pulumi_stack`` and
``automation`` how. Nothing here imports Pulumi.
"""

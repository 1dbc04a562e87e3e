"""Runs stacks when the endpoints that they depend on have changed; never on the way from a pod to Eureka.

``targets`` says what may be run, ``triggers`` when it is, and ``webhook``, ``pulumi_stack`` and
``automation`` how. Nothing here imports Pulumi.
"""

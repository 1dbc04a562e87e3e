"""Runs of stacks after changes of the endpoints that they depend on; they never delay a registration in
Eureka.

``targets`` lists the stacks that may run, ``triggers`` decides when they run, and ``webhook``,
``pulumi_stack`` and ``automation`` run them. Nothing here imports Pulumi.
"""

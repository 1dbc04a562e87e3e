"""The operator's side of the explorer: its real code, stepped one task at a time, between two models.

``threads`` stands in for threads and clocks, ``kube`` for the Kubernetes API, ``dev.eureka`` for Eureka;
``edits`` is what happens to the cluster, ``rules`` is what must hold, ``explorer`` tries all of it.
"""

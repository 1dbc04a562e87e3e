"""The operator's part of the explorer: its real code, stepped one task at a time, between two models.

``threads`` replaces threads and clocks, ``kube`` is the model of the Kubernetes API and ``dev.eureka`` that
of Eureka; ``edits`` are changes to the cluster, ``rules`` must hold, and ``explorer`` tries the sequences.
"""

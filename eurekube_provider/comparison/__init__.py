"""Both worlds side by side: what Kubernetes has and what Eureka has of each application. Pure.

The command line and the operator's status page are made of the same comparisons: the same words, the same
order, worst first. Nothing here asks a server anything.
"""

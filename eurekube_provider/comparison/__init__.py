"""Comparisons of each application's endpoints in Kubernetes with its instances in Eureka.

Pure. The command line and the operator's status page show the same comparisons, in the same words and order,
worst first. No module of this package asks a server.
"""

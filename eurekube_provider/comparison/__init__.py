"""Comparisons of each application's endpoints in Kubernetes with its instances in Eureka, for the command
line and the operator's status page. Pure: nothing here asks a server.
"""

"""The behaviour of real Eureka, Kubernetes, Pulumi and ZooKeeper on which our code relies.

The folder is a package so that its servers end with its tests: an idle server costs a hundredth of a
processor.
"""

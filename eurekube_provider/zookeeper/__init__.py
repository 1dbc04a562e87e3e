"""The registry for ZooKeeper, in the layout of Spring Cloud Zookeeper; loaded only if a connection is of
that kind.
"""

"""The registry for ZooKeeper, as Spring Cloud Zookeeper has it; loaded where a connection is of that kind."""

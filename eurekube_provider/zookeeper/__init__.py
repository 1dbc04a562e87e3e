"""The registry for ZooKeeper, in Spring Cloud Zookeeper's layout; imported for connections of that kind."""

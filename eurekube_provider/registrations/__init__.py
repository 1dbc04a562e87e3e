"""What a stack registers, without Pulumi: properties, connections and the life of a registration."""

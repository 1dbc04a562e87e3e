"""Registrations of a stack, without Pulumi: properties, connections and the life of a registration."""

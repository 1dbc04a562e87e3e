"""Random commands for the model of Eureka, and a transport that asks it."""

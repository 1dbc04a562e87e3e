"""The component EurekubeOperator: everything that an operator needs in its cluster."""

"""A dynamic provider that does nothing: what Pulumi's SDK itself costs."""

from typing import Any

from pulumi.dynamic import CreateResult, ResourceProvider


class EmptyProvider(ResourceProvider):
    """Its outputs are its inputs."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Nothing."""
        return CreateResult(props["host_name"], outs=props)

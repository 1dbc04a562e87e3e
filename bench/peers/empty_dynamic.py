"""A dynamic provider that does nothing: it shows the cost of Pulumi's SDK itself."""

from typing import Any

from pulumi.dynamic import CreateResult, ResourceProvider


class EmptyProvider(ResourceProvider):
    """A provider whose outputs are its inputs."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Return the inputs as outputs, and create nothing."""
        return CreateResult(props["host_name"], outs=props)

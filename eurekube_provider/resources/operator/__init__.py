"""The component EurekubeOperator: everything that an operator needs in its cluster."""

from eurekube_provider.resources.operator.args import EurekubeOperatorArgs
from eurekube_provider.resources.operator.component import EurekubeOperator

__all__ = ["EurekubeOperator", "EurekubeOperatorArgs"]

"""The component EurekubeOperator: everything that an operator needs in its cluster."""

from eurekube_provider.resources.operator.args import EurekubeOperatorArgs, EurekubeOperatorArgsDict
from eurekube_provider.resources.operator.component import EurekubeOperator
from eurekube_provider.resources.operator.connections import EurekaConnectionArgs, EurekaConnectionArgsDict
from eurekube_provider.resources.operator.credentials import EurekaSecretArgs, EurekaSecretArgsDict

__all__ = [
    "EurekaConnectionArgs",
    "EurekaConnectionArgsDict",
    "EurekaSecretArgs",
    "EurekaSecretArgsDict",
    "EurekubeOperator",
    "EurekubeOperatorArgs",
    "EurekubeOperatorArgsDict",
]

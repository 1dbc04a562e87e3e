"""The component EurekubeOperator: everything that an operator needs in its cluster."""

from eurekube_provider.resources.operator_component.arguments import (
    EurekubeOperatorArgs,
    EurekubeOperatorArgsDict,
)
from eurekube_provider.resources.operator_component.component import EurekubeOperator
from eurekube_provider.resources.operator_component.credentials import EurekaSecretArgs, EurekaSecretArgsDict
from eurekube_provider.resources.operator_component.eureka_arguments import (
    EurekaConnectionArgs,
    EurekaConnectionArgsDict,
)

__all__ = [
    "EurekaConnectionArgs",
    "EurekaConnectionArgsDict",
    "EurekaSecretArgs",
    "EurekaSecretArgsDict",
    "EurekubeOperator",
    "EurekubeOperatorArgs",
    "EurekubeOperatorArgsDict",
]

"""The component EurekubeOperator: everything that an operator needs in its cluster."""

from eurekube_provider.resources.operator_component.component import EurekubeOperator
from eurekube_provider.resources.operator_component.credentials import EurekaSecretArgs, EurekaSecretArgsDict
from eurekube_provider.resources.operator_component.eureka_arguments import (
    EurekaConnectionArgs,
    EurekaConnectionArgsDict,
)
from eurekube_provider.resources.operator_component.operator_arguments import (
    EurekubeOperatorArgs,
    EurekubeOperatorArgsDict,
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

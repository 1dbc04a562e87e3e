"""Exports of this project's program for StackReferences of other stacks: their names do not change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import pulumi


class OperatorExport(TypedDict):
    """The operator that a stack runs.

    :ivar name: the value of ``renewer`` for registrations elsewhere.
    """

    name: pulumi.Input[str]
    namespace: pulumi.Input[str]


class Exports(TypedDict):
    """The outputs of a stack of this project, by their names.

    :ivar eurekaUrls: the service URLs of the default connection, without credentials.
    :ivar syncers: ``<namespace>/<name>`` by the name in the configuration.
    :ivar registrations: the instance id in Eureka by the name in the configuration.
    """

    eurekaUrls: Sequence[str]
    operator: OperatorExport
    syncers: Mapping[str, pulumi.Input[str]]
    registrations: Mapping[str, pulumi.Input[str]]


def export(exports: Exports) -> None:
    """Make these exports the outputs of the running program."""
    for name, value in exports.items():
        pulumi.export(name, value)

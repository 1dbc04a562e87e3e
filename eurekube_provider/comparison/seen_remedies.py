"""Remedies for the faults that `status`, `explain` and the status page show beside the conditions: pure.

Conditions have theirs in :mod:`eurekube_provider.core.remedies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from eurekube_provider.core.condition_types import SyncerCondition
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.remedies import READ_SELF_CHECK, SYNCER_REMEDIES


class ObservedReason(StrEnum):
    """Reasons of problems that only a comparison of Kubernetes with Eureka shows, and no operator."""

    NOT_LOOKED_AT = "NotLookedAt"
    """No operator has reconciled the object yet."""

    DIFFERS = "Differs"
    """The conditions report no problem, and Kubernetes and Eureka differ."""

    DELETED = "Deleted"
    """The object was deleted, and its instances or Services still exist."""

    NO_SUCH_SYNCER = "NoSuchSyncer"
    """Eureka has instances of a syncer that does not exist."""

    NONE_UP = "NoneUp"
    """A stack, another cluster or the application itself keeps instances, and none of them is UP."""

    UNREADABLE_INSTANCE = "UnreadableInstance"
    """None of an application's instances is UP, and some of them cannot be read."""

    STALE = "Stale"
    """The mirror's status is too old to be relied on."""


class FindingName(StrEnum):
    """A fault of a Eureka, or of the operator itself."""

    EUREKA_UNREACHABLE = "EurekaUnreachable"
    """No server of a Eureka can be read."""

    SERVER_AWAY = "ServerAway"
    """One server of a Eureka does not answer; others do."""

    SELF_PRESERVATION = "SelfPreservation"
    """A Eureka server evicts nothing, or will not once one more renewal is missing."""

    LARGE_RENEWAL_SHARE = "Share"
    """The operator renews so many of a Eureka's instances that a long stop would begin self-preservation."""

    OPERATOR_STUCK = "OperatorStuck"
    """A loop of the operator has stopped making progress."""

    OPERATOR_NOT_READY = "OperatorNotReady"
    """The operator has not read all that it needs, and changes nothing yet."""

    OPERATOR_AWAY = "OperatorAway"
    """No operator of the cluster leads."""

    TWO_OPERATORS = "OperatorTwice"
    """Two operators serve the same syncers."""

    INSTANCES_NOT_RENEWED = "NotRenewed"
    """An operator leads, and nobody renews the cluster's instances."""

    EUREKA_NOT_READ = "EurekaNotRead"
    """The operator has not read a Eureka for long."""

    NAMESPACE_NOT_WATCHED = "NotWatched"
    """No operator that runs watches the namespace of a syncer or mirror."""

    KUBERNETES_UNREAD = "KubernetesUnread"
    """The operator cannot read a kind of object at the moment, and works with what it read before."""


REMEDY_BY_OBSERVED_REASON: Mapping[str, str] = {
    ObservedReason.NOT_LOOKED_AT: (
        "start an operator that serves this namespace; if one runs, read its log: its self-check names each"
        " right that is missing"
    ),
    ObservedReason.DIFFERS: (
        "wait half a minute, since Eureka's list may be that old; if it stays, read the operator's log"
    ),
    ObservedReason.DELETED: (
        "wait until the operator has finished; if none runs, start one, or make one pass:"
        " `eurekube operator --once`"
    ),
    ObservedReason.NO_SUCH_SYNCER: (
        "wait until the operator has deregistered them; if none runs, start one, or make one pass: `eurekube "
        "operator --once`"
    ),
    ObservedReason.NONE_UP: (
        "run `eurekube explain` with the application's name: it says of each instance why it is not UP"
    ),
    ObservedReason.UNREADABLE_INSTANCE: SYNCER_REMEDIES[SyncerCondition.UNREADABLE_INSTANCE],
    ObservedReason.STALE: "start an operator with --mirrors; if one runs, read its log",
}

REMEDY_BY_FINDING_NAME: Mapping[str, str] = {
    FindingName.EUREKA_UNREACHABLE: (
        "find out why Eureka does not answer as it should; what it holds is kept meanwhile"
    ),
    FindingName.SERVER_AWAY: (
        "start that server again, or take its URL out of the settings; the other servers go on meanwhile"
    ),
    FindingName.SELF_PRESERVATION: (
        "find out which instances are no longer renewed, and start them again or deregister them"
    ),
    FindingName.LARGE_RENEWAL_SHARE: (
        "run three replicas of the operator, so that the renewals go on when one stops"
    ),
    FindingName.OPERATOR_STUCK: "read the operator's log, restart the operator, and report it",
    FindingName.OPERATOR_NOT_READY: (
        "wait; if it stays, read the operator's log: its self-check tries each right and each Eureka"
    ),
    FindingName.OPERATOR_AWAY: (
        "start the operator, or find out why its pods do not run: describe its Deployment with kubectl, and "
        "read its log"
    ),
    FindingName.TWO_OPERATORS: (
        "uninstall one of the two; or give each namespaces of its own with --watch-namespace"
    ),
    FindingName.INSTANCES_NOT_RENEWED: "read the log of the operator that leads, and restart it",
    FindingName.EUREKA_NOT_READ: "find out why the operator does not reach it: read its log",
    FindingName.NAMESPACE_NOT_WATCHED: (
        "add the namespaces to --watch-namespace of the operator, or start one that watches them"
    ),
    FindingName.KUBERNETES_UNREAD: f"wait; if it stays, {READ_SELF_CHECK}",
}


def observed_problem(reason: ObservedReason, message: str) -> Problem:
    """Return the problem of an application or a mirror, with its remedy."""
    return Problem(reason, message, REMEDY_BY_OBSERVED_REASON[reason])

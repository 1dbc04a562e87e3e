"""Remedies for the faults that `status`, `explain` and the status page show beside the conditions: pure.

Conditions have theirs in :mod:`eurekube_provider.core.remedies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from eurekube_provider.core.condition_types import ConditionType
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.remedies import REMEDIES


class Seen(StrEnum):
    """Reasons that no operator gives, since they are what a look at both worlds shows."""

    NOT_LOOKED_AT = "NotLookedAt"
    """No operator has looked at it."""

    DIFFERS = "Differs"
    """Its conditions say that all is well, and both worlds differ."""

    DELETED = "Deleted"
    """It was deleted, and what it registered or made is still there."""

    NO_SUCH_SYNCER = "NoSuchSyncer"
    """Eureka has instances of a syncer that is not there."""

    NONE_UP = "NoneUp"
    """A stack, another cluster or the application itself keeps instances, and none of them is UP."""

    UNREADABLE_INSTANCE = "UnreadableInstance"
    """None of an application's instances is UP, and some of them cannot be read."""

    STALE = "Stale"
    """The mirror's status about Eureka is too old to be true."""


class FindingName(StrEnum):
    """A fault of a Eureka, or of the operator itself."""

    EUREKA_UNREACHABLE = "EurekaUnreachable"
    """No server of a Eureka can be read."""

    SERVER_AWAY = "ServerAway"
    """One server of a Eureka does not answer; others do."""

    SELF_PRESERVATION = "SelfPreservation"
    """A server of Eureka forgets nobody, or will not with the next renewal that is missing."""

    SHARE = "Share"
    """The operator renews so many of a Eureka's instances that a long stop would begin self-preservation."""

    OPERATOR_STUCK = "OperatorStuck"
    """A loop of the operator does not go on."""

    OPERATOR_NOT_READY = "OperatorNotReady"
    """The operator has not read all that it needs, and changes nothing yet."""

    OPERATOR_AWAY = "OperatorAway"
    """No operator of the cluster leads."""

    OPERATOR_TWICE = "OperatorTwice"
    """Two operators serve the same syncers."""

    NOT_RENEWED = "NotRenewed"
    """An operator leads, and nobody renews the cluster's instances."""

    EUREKA_NOT_READ = "EurekaNotRead"
    """The operator has not read a Eureka for long."""

    NOT_WATCHED = "NotWatched"
    """No operator that runs watches the namespace of a syncer or mirror."""

    KUBERNETES_UNREAD = "KubernetesUnread"
    """The operator cannot read a kind of object at the moment, and works with what it read before."""


SEEN_REMEDIES: Mapping[str, str] = {
    Seen.NOT_LOOKED_AT: (
        "start an operator that serves this namespace; if one runs, read its log, and run"
        " `eurekube operator --check`, which names each right that is missing"
    ),
    Seen.DIFFERS: (
        "wait half a minute, since Eureka's list may be that old; if it stays, read the operator's log"
    ),
    Seen.DELETED: (
        "wait until the operator has finished; if none runs, start one, or make one pass:"
        " `eurekube operator --once`"
    ),
    Seen.NO_SUCH_SYNCER: (
        "wait until the operator has deregistered them; if none runs, start one, or make one pass:"
        " `eurekube operator --once`"
    ),
    Seen.NONE_UP: (
        "run `eurekube explain` with the application's name: it says of each instance why it is not UP"
    ),
    Seen.UNREADABLE_INSTANCE: REMEDIES[ConditionType.UNREADABLE_INSTANCE],
    Seen.STALE: "start an operator with --mirrors; if one runs, read its log",
}
"""The remedy for each reason of an application or a mirror."""

FINDING_REMEDIES: Mapping[str, str] = {
    FindingName.EUREKA_UNREACHABLE: (
        "find out why Eureka does not answer as it should; what it holds is kept meanwhile"
    ),
    FindingName.SERVER_AWAY: (
        "start that server again, or take its URL out of the settings; the other servers go on meanwhile"
    ),
    FindingName.SELF_PRESERVATION: (
        "find out which instances are no longer renewed, and start them again or deregister them"
    ),
    FindingName.SHARE: "run three replicas of the operator, so that the renewals go on when one stops",
    FindingName.OPERATOR_STUCK: "read the operator's log, restart the operator, and report it",
    FindingName.OPERATOR_NOT_READY: (
        "wait; if it stays, run `eurekube operator --check`, which tries each right and each Eureka"
    ),
    FindingName.OPERATOR_AWAY: (
        "start the operator, or find out why its pods do not run: describe its Deployment with kubectl, and"
        " read its log"
    ),
    FindingName.OPERATOR_TWICE: (
        "uninstall one of the two; or give each namespaces of its own with --watch-namespace"
    ),
    FindingName.NOT_RENEWED: "read the log of the operator that leads, and restart it",
    FindingName.EUREKA_NOT_READ: "find out why the operator does not reach it: read its log",
    FindingName.NOT_WATCHED: (
        "add the namespaces to --watch-namespace of the operator, or start one that watches them"
    ),
    FindingName.KUBERNETES_UNREAD: (
        "wait; if it stays, run `eurekube operator --check`, which names each right that is missing"
    ),
}
"""The remedy for each finding that is about no application."""


def seen(reason: Seen, message: str) -> Problem:
    """Return the problem of an application or a mirror, with its remedy."""
    return Problem(reason, message, SEEN_REMEDIES[reason])

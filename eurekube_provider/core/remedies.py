"""Remedies by condition, for a problem that has none of its own. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from eurekube_provider.core.condition_types import ConditionType, Reason, RefreshCondition, RefreshReason
from eurekube_provider.core.registry_kinds import KINDS

REMEDIES: Mapping[str, str] = {
    ConditionType.BRAKED: (
        "wait a minute; if the removals are meant, annotate the syncer with eurekube.io/release-brake=now"
    ),
    ConditionType.CONFLICT: (
        "keep one of the two: delete the other syncer, or have the other owner let go; or set"
        " spec.application to another name; one that cannot be read is removed by whoever wrote it"
    ),
    ConditionType.UNREADABLE_INSTANCE: (
        "have whoever wrote it remove it, or write it as the registry's clients read it"
    ),
    ConditionType.SELF_REGISTERED: (
        f"switch the pod's own client off: {' or '.join(one.client_off for one in KINDS)}"
    ),
    ConditionType.AMBIGUOUS_SERVICE: (
        "call one Service as the application, or select it alone by spec.selector.matchLabels"
    ),
    ConditionType.ENDPOINTS_LEFT_OUT: (
        "none where they are not meant; else give the pods the port, and the endpoints addresses"
    ),
    ConditionType.METADATA_LEFT_OUT: (
        "give the Service the port or the annotation that the message names, or take it out of the spec"
    ),
    ConditionType.DEAD_SELF_REGISTERED: (
        "switch the pods' own client off (eureka.client.register-with-eureka=false); to have such"
        " registrations removed, set spec.removeDeadSelfRegistered to true"
    ),
    ConditionType.AMBIGUOUS_PORT: "set spec.port to the name or the number of one of the ports",
    ConditionType.NO_PORT: "set spec.port to one of the ports that there are",
    ConditionType.NO_ADDRESS: "set spec.advertise to a kind of address that there is",
    ConditionType.LEASE_TOO_SHORT: "raise spec.lease.durationSeconds to 90, which is Eureka's default",
    ConditionType.DRAIN_TOO_SHORT: (
        "run `eurekube doctor`, which says what to change and where; with --fix it prints the patch"
    ),
    ConditionType.NAME_NOT_RESERVED: (
        "have the operator's administrators reserve the name for this namespace, or take another name"
    ),
    ConditionType.WAITING_FOR_CALLERS: (
        "none while callers learn of the pods; else fix what the message names, or open the gate by hand:"
        " eurekube gate open"
    ),
    ConditionType.PAUSED: "set spec.paused to false",
    Reason.EUREKA_UNREACHABLE: "find out why Eureka does not answer; what it holds is kept meanwhile",
    Reason.EUREKA_DENIED: (
        "give the operator credentials that the registry accepts, or have it allow what the message names"
    ),
    Reason.EUREKA_REJECTED: "read in the message what Eureka refuses, and change it in the syncer",
    Reason.KUBERNETES_ERROR: "run eurekube operator --check, which names each right that is missing",
    Reason.FAILED: "read the operator's log, and report it",
    Reason.NOT_ALLOWED: "have the operator's administrators allow it, or change what it names",
    Reason.UNKNOWN_EUREKA: "set spec.eureka to a connection of the operator's, or add the connection there",
    Reason.INVALID_INSTANCE: "change the value that the message names",
    Reason.NO_MATCHING_SERVICE: "make the Service, or correct spec.selector",
    Reason.EXTERNAL_NAME: "select a Service with endpoints, or register what the name leads to by a stack",
    Reason.NAMESPACE_NOT_READ: "wait; if it stays, run eurekube operator --check",
    Reason.NODES_NOT_READ: "wait; if it stays, run eurekube operator --check",
    Reason.PODS_NOT_READ: "wait; if it stays, run eurekube operator --check",
    Reason.NOT_SERVED: "start an operator that watches the syncer's namespace",
    Reason.NONE_UP: "find out why no pod is ready, or who took the instances out of service",
}
"""Remedies by the name of a condition of a EurekaSyncer, or of a reason of Ready and Synced; a condition
without a fault has none.
"""

REFRESH_REMEDIES: Mapping[str, str] = {
    RefreshCondition.BRAKED: (
        "wait a minute; if the change is meant, annotate the StackRefresh with eurekube.io/release-brake=now"
    ),
    RefreshCondition.PAUSED: "set spec.paused to false",
    RefreshReason.UNKNOWN_TARGET: (
        "set spec.target to a target of the operator's configuration, or add the target there"
    ),
    RefreshReason.NOT_ALLOWED: "have the operator's administrators allow it, or change what it names",
    RefreshReason.NO_MATCHING_SERVICE: "make the Service, or correct spec.selector",
}
"""Remedies by condition and reason of a StackRefresh. A failed run's own message says what to do."""

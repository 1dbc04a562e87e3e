"""Remedies by condition, for a problem that has none of its own. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from eurekube_provider.core.condition_types import Reason, RefreshCondition, RefreshReason, SyncerCondition
from eurekube_provider.core.registry_kinds import REGISTRY_KINDS

READ_SELF_CHECK = "read the operator's log: its self-check names each right that is missing"
"""A remedy for missing rights; ``eurekube operator --check`` would ask for those of whoever types it."""

SYNCER_REMEDIES: Mapping[str, str] = {
    SyncerCondition.BRAKED: (
        "wait a minute; if the removals are meant, annotate the syncer with eurekube.io/release-brake=now"
    ),
    SyncerCondition.CONFLICT: (
        "delete one of the two syncers, or have the other owner deregister its instance, or set"
        " spec.application to another name; an entry that cannot be read must be removed by its author"
    ),
    SyncerCondition.UNREADABLE_INSTANCE: (
        "have the entry's author remove it, or write it in a form that the registry's clients read"
    ),
    SyncerCondition.SELF_REGISTERED: (
        f"switch the pod's own client off: {' or '.join(one.client_off_setting for one in REGISTRY_KINDS)}"
    ),
    SyncerCondition.AMBIGUOUS_SERVICE: (
        "call one Service as the application, or select it alone by spec.selector.matchLabels"
    ),
    SyncerCondition.ENDPOINTS_LEFT_OUT: (
        "nothing where these endpoints need no callers; else give the pods the port, and the endpoints "
        "addresses"
    ),
    SyncerCondition.METADATA_LEFT_OUT: (
        "give the Service the port or the annotation that the message names, or take it out of the spec"
    ),
    SyncerCondition.DEAD_SELF_REGISTERED: (
        "switch the pods' own client off (eureka.client.register-with-eureka=false); to have such"
        " registrations removed, set spec.removeDeadSelfRegistered to true"
    ),
    SyncerCondition.AMBIGUOUS_PORT: "set spec.port to the name or the number of one of the ports",
    SyncerCondition.NO_PORT: "set spec.port, or spec.securePort, to the name of a port of the Service",
    SyncerCondition.NO_ADDRESS: "do what the message says, or set spec.advertise to an address that it has",
    SyncerCondition.LEASE_TOO_SHORT: "raise spec.lease.durationSeconds to 90, which is Eureka's default",
    SyncerCondition.DRAIN_TOO_SHORT: (
        "run `eurekube doctor`, which says what to change and where; with --fix it prints the patch"
    ),
    SyncerCondition.NAME_NOT_RESERVED: (
        "have the operator's administrators reserve the name for this namespace, or take another name"
    ),
    SyncerCondition.WAITING_FOR_CALLERS: (
        "wait while callers learn of the new pods; if it lasts, correct the cause in the message, or open"
        " the gate by hand: eurekube gate open"
    ),
    SyncerCondition.PAUSED: "set spec.paused to false",
    Reason.EUREKA_UNREACHABLE: (
        "start Eureka or correct its URL: eurekube operator --check names what fails; nothing that serves is "
        "removed meanwhile"
    ),
    Reason.EUREKA_DENIED: (
        "give the operator credentials that the registry accepts, or have it allow what the message names"
    ),
    Reason.EUREKA_REJECTED: "change in the syncer the value that the message names",
    Reason.KUBERNETES_ERROR: READ_SELF_CHECK,
    Reason.FAILED: "read the operator's log, and report it",
    Reason.NOT_ALLOWED: "have the operator's administrators allow the value in the message, or change it",
    Reason.UNKNOWN_EUREKA: (
        "set spec.eureka to a connection in the operator's configuration, or add one of that name there"
    ),
    Reason.INVALID_INSTANCE: "change the value that the message names",
    Reason.NO_MATCHING_SERVICE: "create the Service, or correct spec.selector",
    Reason.EXTERNAL_NAME: "select a Service with endpoints, or register the external host by a Pulumi stack",
    Reason.NAMESPACE_NOT_READ: f"wait; if it stays, {READ_SELF_CHECK}",
    Reason.NODES_NOT_READ: f"wait; if it stays, {READ_SELF_CHECK}",
    Reason.PODS_NOT_READ: f"wait; if it stays, {READ_SELF_CHECK}",
    Reason.ROUTES_NOT_READ: f"wait; if it stays, {READ_SELF_CHECK}",
    Reason.JOINING: "wait; if it stays, read the operator's log",
    Reason.LEAVING: "restore the annotation eurekube.io/sync of the Service if it is to stay",
    Reason.SERVICE_REFUSED: "correct the annotation of the Service that the message names",
    Reason.NOT_SERVED: "start an operator that watches the syncer's namespace",
    Reason.NONE_UP: "find out why no pod is ready, or who set the instances OUT_OF_SERVICE",
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
    RefreshReason.NOT_ALLOWED: (
        "have the operator's administrators allow the value in the message, or change it"
    ),
    RefreshReason.NO_MATCHING_SERVICE: "create the Service, or correct spec.selector",
}
"""Remedies by condition and reason of a StackRefresh. A failed run's own message says what to do."""

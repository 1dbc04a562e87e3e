"""What mends each condition of an EurekaSyncer, for the doctor and the page of conditions."""

from __future__ import annotations

from collections.abc import Mapping

from eurekube_provider.core.condition_types import ConditionType, Reason

REMEDIES: Mapping[str, str] = {
    ConditionType.BRAKED: (
        "wait a minute; where it is meant, annotate the syncer with eurekube.io/release-brake"
    ),
    ConditionType.CONFLICT: (
        "keep one of the two: delete the other syncer, or have the other owner let go; or set"
        " spec.application to another name"
    ),
    ConditionType.SELF_REGISTERED: (
        "switch the pod's own client off: eureka.client.register-with-eureka=false"
    ),
    ConditionType.AMBIGUOUS_PORT: "set spec.port to the name or the number of one of the ports",
    ConditionType.NO_PORT: "set spec.port to one of the ports that there are",
    ConditionType.NO_ADDRESS: "set spec.advertise to a kind of address that there is",
    ConditionType.LEASE_TOO_SHORT: "raise spec.lease.durationSeconds to 90, which is Eureka's default",
    ConditionType.DRAIN_TOO_SHORT: (
        "apply the patch in the message, which gives the pods a preStop and a grace period"
    ),
    ConditionType.PAUSED: "set spec.paused to false",
    Reason.EUREKA_UNREACHABLE: "find out why Eureka does not answer; what it holds is kept meanwhile",
    Reason.EUREKA_DENIED: "give the operator the credentials that Eureka asks for",
    Reason.EUREKA_REJECTED: "read in the message what Eureka refuses, and change it in the syncer",
    Reason.KUBERNETES_ERROR: "run eurekube operator --check, which names each right that is missing",
    Reason.FAILED: "read the operator's log, and report it",
    Reason.NOT_ALLOWED: "have whoever runs the operator allow it, or change what the message names",
    Reason.UNKNOWN_EUREKA: "set spec.eureka to a connection of the operator's, or add the connection there",
    Reason.INVALID_INSTANCE: "change the value that the message names",
    Reason.NO_MATCHING_SERVICE: "make the Service, or correct spec.selector",
    Reason.NAMESPACE_NOT_READ: "wait; if it stays, run eurekube operator --check",
    Reason.NODES_NOT_READ: "wait; if it stays, run eurekube operator --check",
    Reason.PODS_NOT_READ: "wait; if it stays, run eurekube operator --check",
    Reason.NONE_UP: "find out why no pod is ready, or who took the instances out of service",
}
"""By the name of a condition, or of a reason of Ready and Synced; where nothing is wrong there is none."""

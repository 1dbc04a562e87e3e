"""The findings of ``--check`` on the cluster's names in Eureka, and on namespaces that nobody serves."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import (
    CLUSTER_UID_KEY,
    SELF_RENEWER_VALUE,
    Cluster,
    ClusterOwner,
    StackOwner,
    default_cluster_name,
    parse_owner,
)
from eurekube_provider.core.lease_notes import ALL_NAMESPACES, LeaseNotes, parse_lease_notes
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.core.objects import qualified_name
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.served import (
    MAX_INSTANCES_READ_UNCACHED,
    UNRENEWED_LIMIT_SECONDS,
    filter_instances_of_syncer,
    last_renewed_unix,
    not_served_problem,
    syncers_not_watched,
)
from eurekube_provider.core.wording import format_count, suggest_name
from eurekube_provider.kube.access import LEASES, NAMESPACES, SYNCERS, KubeAccess, namespace_exists
from eurekube_provider.operator.settings import Settings

LAPSE_TIME_TEXT = "lapse after 90 to 180 s"
"""The words about the time at which Eureka evicts instances that nobody renews."""

ReadInstances = Callable[[Iterable[InstanceKey]], list[Instance]]
"""Callback that reads instances past the servers' caches, and leaves out instances that cannot be read."""


class CheckVerdict(StrEnum):
    """The verdict of one check."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing, without anything to do."""
    WARNING = "warning"
    """A fault that hampers the operator."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    :ivar check: ``kubernetes``, ``crd``, ``permission``, ``encryption``, ``eureka``, ``batches``, ``clock``,
        ``zookeeper``, ``marker``, ``name`` or ``namespace``.
    :ivar detail: the present state; for a warning also its effect, and what to do.
    """

    check: str
    subject: str
    verdict: CheckVerdict
    detail: str


def cluster_name_findings(
    settings: Settings,
    uid: str,
    notes: LeaseNotes,
    instances: Sequence[Instance],
    *,
    are_all_listed: bool = True,
) -> Iterator[CheckResult]:
    """Yield findings on registrations under other names of the cluster, on a cluster name that another
    cluster uses, and on one that is not set. A pure function.

    :param are_all_listed: False if a Eureka could not be read, so that nobody can count them.
    """
    name = settings.cluster_name or default_cluster_name(uid)
    cluster = Cluster(name, uid)
    theirs = [
        one
        for one in instances
        if (one.metadata.get(CLUSTER_UID_KEY) or uid) != uid
        and cluster.parse_syncer_of_this_cluster(one.owner)
    ]
    if theirs and not settings.take_over_cluster:
        said = (
            f"another cluster has {format_count(len(theirs))} under this name, with the UID"
            f" {printable(theirs[0].metadata[CLUSTER_UID_KEY])}: an operator of this cluster does not start."
            " Set another --cluster-name; or, if this cluster was rebuilt and the other is gone,"
            " --take-over-cluster true"
        )
        yield CheckResult("name", name, CheckVerdict.WARNING, said)
    owners = [parse_owner(one.owner) for one in instances if one.metadata.get(CLUSTER_UID_KEY) == uid]
    ours = [
        one for one in owners if isinstance(one, ClusterOwner) and settings.watches_namespace(one.namespace)
    ]
    counts = Counter(one.cluster for one in ours)
    previous = {*notes.with_cluster_name(name, settings.previous_cluster_names).previous_cluster_names}
    for other in sorted(counts.keys() - {name}):
        count, called = format_count(counts[other]), printable(other)
        if other in previous:
            said = f"a former name of the cluster {name}: {count} will be taken over"
        elif counts[name]:
            said = (
                f"{count} of this cluster's syncers are registered under this name, and {counts[name]} under"
                f" {name}: another operator calls the cluster so"
            )
        else:
            said = (
                f"all {count} of this cluster's syncers are registered under this name, and none under"
                f" {name}: if the cluster was called so before, start the operator with"
                f" --previous-cluster-name {called}, which takes them over; until then those of its endpoints"
                " are renewed, and left as they are"
            )
        is_unexplained = other not in previous and not counts[name]
        verdict = CheckVerdict.WARNING if is_unexplained else CheckVerdict.NOTE
        yield CheckResult("name", called, verdict, said)
    if settings.cluster_name is None:
        lost = format_count(counts[name]) if are_all_listed else "its instances"
        said = (
            "nobody gave the cluster's name, which is a part of its UID then: an operator that starts while"
            f" the Kubernetes API does not answer would renew nothing, and {lost} would"
            f" {LAPSE_TIME_TEXT}. --cluster-name {name} changes nothing else"
        )
        yield CheckResult("name", name, CheckVerdict.NOTE, said)


def unrenewed_registration_findings(
    operator_name: str, instances: Iterable[Instance], read: ReadInstances
) -> Iterator[CheckResult]:
    """Yield findings on stacks' registrations that ask another operator to renew them, which none does."""
    by_renewer: dict[str, list[Instance]] = {}
    for one in instances:
        is_stacks = isinstance(parse_owner(one.owner), StackOwner)
        if is_stacks and one.renewer and one.renewer not in (operator_name, SELF_RENEWER_VALUE):
            by_renewer.setdefault(one.renewer, []).append(one)
    now = time.time()
    for renewer, those in sorted(by_renewer.items()):
        found = read([one.key for one in those[:MAX_INSTANCES_READ_UNCACHED]])
        times = [at for one in found if (at := last_renewed_unix(one)) is not None]
        if times and now - max(times) > UNRENEWED_LIMIT_SECONDS:
            said = (
                f"{format_count(len(those), 'registration')} of stacks ask an operator of this name to renew "
                f"them, and nobody has for {now - max(times):.0f} s: start one with --operator-name "
                f"{printable(renewer)}, or run the stacks with the renewer {operator_name}"
            )
            yield CheckResult("name", printable(renewer), CheckVerdict.WARNING, said)


def name_and_namespace_findings(
    settings: Settings,
    access: KubeAccess,
    lease: tuple[str, str],
    instances: Sequence[Instance],
    read: ReadInstances,
    *,
    are_all_listed: bool = True,
) -> Iterator[CheckResult]:
    """Yield findings on names and namespaces; none where the cluster does not answer."""
    try:
        uid = str(access.get(NAMESPACES.path(name="kube-system"))["metadata"]["uid"])
    except KubernetesError:
        return
    notes = LeaseNotes()
    try:
        notes = parse_lease_notes(access.get(LEASES.path(*lease)).get("metadata") or {})
    except KubernetesError as error:
        if error.status_code not in (403, 404):  # which the check of rights says, or there is none
            said = f"what the Lease remembers cannot be read: {error}"
            yield CheckResult("name", "/".join(lease), CheckVerdict.WARNING, said)
    yield from cluster_name_findings(settings, uid, notes, instances, are_all_listed=are_all_listed)
    yield from unrenewed_registration_findings(settings.operator_name, instances, read)
    if settings.watch_namespaces:
        cluster = Cluster(settings.cluster_name or default_cluster_name(uid), uid)
        yield from _namespace_findings(settings.watch_namespaces, access, cluster, notes, instances, read)


def _namespace_findings(
    watched: Sequence[str],
    access: KubeAccess,
    cluster: Cluster,
    notes: LeaseNotes,
    instances: Sequence[Instance],
    read: ReadInstances,
) -> Iterator[CheckResult]:
    """Yield findings on watched namespaces that do not exist, and on syncers that no operator would serve."""
    items = []
    try:
        items = [item for page in access.pages(SYNCERS.path()) for item in page.get("items") or ()]
    except KubernetesError as error:
        if error.status_code != 404:  # where there is no such kind, there is no syncer
            said = f"it cannot be seen whether syncers of other namespaces are served: {error}"
            yield CheckResult("namespace", "all", CheckVerdict.WARNING, said)
    known = sorted({str(item["metadata"]["namespace"]) for item in items})
    for namespace in watched:
        if namespace not in known and not namespace_exists(access, namespace):
            near = suggest_name(namespace, known) if known else "no namespace has a syncer"
            said = f"the cluster has no such namespace: is it misspelt in --watch-namespace? {near}"
            yield CheckResult("namespace", namespace, CheckVerdict.WARNING, said)
    dropped_namespaces = {*notes.with_watched_namespaces(tuple(watched), known).dropped_namespaces}
    now = time.time()
    for item in syncers_not_watched(items, watched):
        namespace, subject = str(item["metadata"]["namespace"]), f"EurekaSyncer {qualified_name(item)}"
        owned = filter_instances_of_syncer(item, cluster, instances)[:MAX_INSTANCES_READ_UNCACHED]
        there = read([one.key for one in owned])
        why = not_served_problem(item, there, now, had_instances_there=namespace in dropped_namespaces)
        if why is not None:
            yield CheckResult("namespace", subject, CheckVerdict.WARNING, why.text)
        elif {namespace, ALL_NAMESPACES} & {*notes.watched_namespaces}:
            said = (
                "the operator of this Lease watches its namespace, and these settings do not: unless another"
                f" operator serves it, its instances {LAPSE_TIME_TEXT}. Add {namespace} to --watch-namespace"
            )
            yield CheckResult("namespace", subject, CheckVerdict.WARNING, said)

"""The findings of ``--check`` about names: the cluster's names in Eureka, and namespaces that nobody
serves.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import (
    CLUSTER_UID_KEY,
    SELF_RENEWED,
    Cluster,
    ClusterOwner,
    StackOwner,
    default_cluster_name,
    parse_owner,
)
from eurekube_provider.core.lease_notes import LeaseNotes, read_notes
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.core.objects import qualified
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.served import (
    LEASE_SECONDS,
    MOST_READ,
    instances_of,
    renewed_at,
    syncers_not_watched,
    why_not_served,
)
from eurekube_provider.core.wording import counted, nearest
from eurekube_provider.kube.access import LEASES, NAMESPACES, SYNCERS, KubeAccess, namespace_exists
from eurekube_provider.operator.settings import Settings

LAPSE = "lapse after 90 to 180 s"

Read = Callable[[Iterable[Key]], list[Instance]]
"""Function that reads instances past the servers' caches, and leaves out those that cannot be read."""


@dataclass(frozen=True, slots=True)
class NameFinding:
    """A finding about a name.

    :ivar check: ``name`` for the cluster's or an operator's name, or ``namespace``.
    :ivar subject: the name of the object.
    :ivar detail: the present state, and the remedy.
    :ivar hampers: False for a mere note.
    """

    check: str
    subject: str
    detail: str
    hampers: bool = True


def name_findings(
    settings: Settings, uid: str, notes: LeaseNotes, instances: Iterable[Instance]
) -> Iterator[NameFinding]:
    """Find registrations under other names of the cluster, and the cost of a cluster name that is not set.

    Pure.

    :param uid: UID of the cluster's kube-system namespace.
    :param notes: the notes at the operator's Lease.
    :param instances: the instances that Eureka lists.
    """
    name = settings.cluster_name or default_cluster_name(uid)
    owners = [parse_owner(one.owner) for one in instances if one.metadata.get(CLUSTER_UID_KEY) == uid]
    ours = [one for one in owners if isinstance(one, ClusterOwner) and settings.watches(one.namespace)]
    counts = Counter(one.cluster for one in ours)
    previous = {*notes.called(name, settings.previous_cluster_names).previous_names}
    for other in sorted(counts.keys() - {name}):
        count, called = counted(counts[other]), printable(other)
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
        yield NameFinding("name", called, said, other not in previous and not counts[name])
    if settings.cluster_name is None:
        said = (
            "nobody gave the cluster's name, which is a part of its UID then: an operator that starts while"
            f" the Kubernetes API does not answer would renew nothing, and {counted(counts[name])} would"
            f" {LAPSE}. --cluster-name {name} changes nothing else"
        )
        yield NameFinding("name", name, said, hampers=False)


def renewer_findings(operator_name: str, instances: Iterable[Instance], read: Read) -> Iterator[NameFinding]:
    """Find stacks' registrations that ask another operator to renew them, and that it does not renew."""
    by_renewer: dict[str, list[Instance]] = {}
    for one in instances:
        is_stacks = isinstance(parse_owner(one.owner), StackOwner)
        if is_stacks and one.renewer and one.renewer not in (operator_name, SELF_RENEWED):
            by_renewer.setdefault(one.renewer, []).append(one)
    now = time.time()
    for renewer, those in sorted(by_renewer.items()):
        found = read([one.key for one in those[:MOST_READ]])
        times = [at for one in found if (at := renewed_at(one)) is not None]
        if times and now - max(times) > LEASE_SECONDS:
            said = (
                f"{counted(len(those), 'registration')} of stacks ask an operator of this name to renew them,"
                f" and nobody has for {now - max(times):.0f} s: start one with --operator-name"
                f" {printable(renewer)}, or run the stacks with the renewer {operator_name}"
            )
            yield NameFinding("name", printable(renewer), said)


def check_names(
    settings: Settings, access: KubeAccess, lease: tuple[str, str], instances: Sequence[Instance], read: Read
) -> Iterator[NameFinding]:
    """Check names and namespaces; yield nothing where the cluster does not answer, which other checks report.

    :param lease: namespace and name of the operator's Lease.
    :param instances: the instances that Eureka lists.
    """
    try:
        uid = str(access.get(NAMESPACES.path(name="kube-system"))["metadata"]["uid"])
    except KubernetesError:
        return
    notes = LeaseNotes()
    try:
        notes = read_notes(access.get(LEASES.path(*lease)).get("metadata") or {})
    except KubernetesError as error:
        if error.status_code not in (403, 404):  # which the check of rights says, or there is none
            said = f"what the Lease remembers cannot be read: {error}"
            yield NameFinding("name", "/".join(lease), said)
    yield from name_findings(settings, uid, notes, instances)
    yield from renewer_findings(settings.operator_name, instances, read)
    if settings.watch_namespaces:
        cluster = Cluster(settings.cluster_name or default_cluster_name(uid), uid)
        yield from _namespaces(settings.watch_namespaces, access, cluster, notes, instances, read)


def _namespaces(
    watched: Sequence[str],
    access: KubeAccess,
    cluster: Cluster,
    notes: LeaseNotes,
    instances: Sequence[Instance],
    read: Read,
) -> Iterator[NameFinding]:
    """Find watched namespaces that do not exist, and syncers that nobody would serve."""
    items = []
    try:
        items = [item for page in access.pages(SYNCERS.path()) for item in page.get("items") or ()]
    except KubernetesError as error:
        if error.status_code != 404:  # where there is no such kind, there is no syncer
            said = f"it cannot be seen whether syncers of other namespaces are served: {error}"
            yield NameFinding("namespace", "all", said)
    known = sorted({str(item["metadata"]["namespace"]) for item in items})
    for namespace in watched:
        if namespace not in known and not namespace_exists(access, namespace):
            near = nearest(namespace, known) if known else "no namespace has a syncer"
            said = f"the cluster has no such namespace: is it misspelt in --watch-namespace? {near}"
            yield NameFinding("namespace", namespace, said)
    dropped = {*notes.watching(tuple(watched)).dropped}
    now = time.time()
    for item in syncers_not_watched(items, watched):
        namespace, subject = str(item["metadata"]["namespace"]), f"EurekaSyncer {qualified(item)}"
        there = read([one.key for one in instances_of(item, cluster, instances)[:MOST_READ]])
        why = why_not_served(item, there, now, was_there=namespace in dropped)
        if why is not None:
            yield NameFinding("namespace", subject, why.text)
        elif namespace in dropped:
            said = (
                "the operator of this Lease watched its namespace, and these settings do not: unless another"
                f" operator serves it, its instances {LAPSE}. Add {namespace} to --watch-namespace"
            )
            yield NameFinding("namespace", subject, said)

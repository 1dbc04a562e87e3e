"""Owners, instance ids and metadata keys: names that are written into Eureka and outlive a process.

They are read back from Eureka by later versions and by other clusters, so that they are a wire format:
decided once and frozen by tests/unit/core/test_identity.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from eurekube_provider.core.errors import ConfigurationError, InvalidInstance

OWNER_KEY = "eurekube.owner"
"""Metadata key: the owner that registered the instance, see :class:`ClusterOwner` and :class:`StackOwner`."""

RENEWER_KEY = "eurekube.renewer"
"""Metadata key: the name of the operator that renews an instance which a stack owns."""

CLUSTER_UID_KEY = "eurekube.cluster-uid"
"""Metadata key: the UID of the kube-system namespace of the cluster that the instance runs in."""

LEAVING_KEY = "eurekube.leaving"
"""Metadata key: Eurekube itself put the instance out of service, or is about to: an operator because the pod
ends, a stack because the registration is removed after a drain.

The mark is written before the status and removed after it: if the process dies in between, the status does
not pass for a person's.
"""

ENFORCED_KEY = "eurekube.enforced"
"""Metadata key: the status that a stack's program enforces, unless that is UP.

The mark is written before the status and removed after it: an enforced status that no program asks for any
more does not pass for a person's. While a second status replaces a first one, the value has both, with a
space between them.
"""

INCARNATION_KEY = "eurekube.incarnation"
"""Metadata key: one creation of a stack's registration; a removal takes only the creation that it means."""

NODE_KEY = "eurekube.node"
"""Metadata key: the node of an additional instance of a Service, which is registered at several nodes."""

APPLICATION_MEMBER_KEY = "eurekube.member"
"""Metadata key: the key of the instance within its EurekaApplication; absent for a EurekaInstance."""

RESERVED_METADATA_PREFIX = "eurekube."
"""The prefix of metadata keys that only Eurekube may set."""

SELF_RENEWER_VALUE = "self"
"""Value of :data:`RENEWER_KEY` for a registration whose application sends its own renewals."""

DYNAMIC_INSTANCE_TYPE = "pulumi-python:dynamic/eurekube:EurekaInstance"
DYNAMIC_APPLICATION_TYPE = "pulumi-python:dynamic/eurekube:EurekaApplication"
"""The type tokens of the dynamic provider's resources in Pulumi's states."""

NATIVE_INSTANCE_TYPE = "eurekube:index:Instance"
NATIVE_APPLICATION_TYPE = "eurekube:index:Application"
"""The type tokens of the native provider's resources in Pulumi's states."""

DYNAMIC_OPERATOR_GUARD_TYPE = "pulumi-python:dynamic/eurekube:OperatorGuard"
NATIVE_OPERATOR_GUARD_TYPE = "eurekube:index:OperatorGuard"
"""The type tokens, in both providers, of the resource that keeps an operator from being removed while it
is needed; the resource is nothing in a cluster.
"""

_METADATA_KEY_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9.\-]*\Z")
_CLUSTER_NAME_PATTERN = re.compile(r"[a-z0-9]([a-z0-9\-]*[a-z0-9])?\Z")


@dataclass(frozen=True, slots=True)
class ClusterOwner:
    """The owner of a EurekaSyncer's instances: ``cluster/<cluster>/<namespace>/<syncer>``."""

    cluster: str
    namespace: str
    syncer: str

    def __str__(self) -> str:
        return f"cluster/{self.cluster}/{self.namespace}/{self.syncer}"


@dataclass(frozen=True, slots=True)
class StackOwner:
    """The owner of a Pulumi resource's instances: ``stack/<organization>/<project>/<stack>/<name>``."""

    organization: str
    project: str
    stack: str
    name: str

    def __str__(self) -> str:
        return f"stack/{self.organization}/{self.project}/{self.stack}/{self.name}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The Kubernetes cluster from which the objects are read.

    :param name: part of every instance id and owner.
    :param uid: the UID of its kube-system namespace; it tells two clusters of one name apart.
    :param domain: the domain of its DNS names.
    """

    name: str
    uid: str
    domain: str = "cluster.local"

    def parse_syncer_of_this_cluster(self, owner: str | None) -> ClusterOwner | None:
        """Return the syncer of this cluster that ``owner`` names, None for any other owner."""
        parsed = parse_owner(owner)
        return parsed if isinstance(parsed, ClusterOwner) and parsed.cluster == self.name else None

    def has_syncer_under_another_name(self, owner: str | None, uid: str | None) -> bool:
        """Return whether ``owner`` names a syncer of this cluster, but by another name of the cluster.

        :param uid: the cluster's UID in the instance's metadata.
        """
        name = cluster_name_of_owner(owner)
        return name is not None and name != self.name and bool(self.uid) and uid == self.uid


def parse_owner(text: str | None) -> ClusterOwner | StackOwner | None:
    """Parse an owner from an instance's metadata; return None for text that is not an owner of Eurekube's."""
    parts = (text or "").split("/")
    if len(parts) == 4 and parts[0] == "cluster" and all(parts):
        return ClusterOwner(*parts[1:])
    if len(parts) >= 5 and parts[0] == "stack" and all(parts[:4]):
        return StackOwner(parts[1], parts[2], parts[3], "/".join(parts[4:]))
    return None


def owner_in_words(text: str | None) -> str:
    """Return an owner in words, a stack without its resource; the text itself where it is of another form."""
    owner = parse_owner(text)
    if isinstance(owner, ClusterOwner):
        return f"the syncer {owner.namespace}/{owner.syncer} of cluster {owner.cluster}"
    return f"the stack {owner.organization}/{owner.project}/{owner.stack}" if owner else text or ""


def cluster_name_of_owner(owner: str | None) -> str | None:
    """Return the name of the cluster whose syncer ``owner`` is; None for any other owner."""
    parsed = parse_owner(owner)
    return parsed.cluster if isinstance(parsed, ClusterOwner) else None


def are_owners_of_same_stack(one: str | None, other: str | None) -> bool:
    """Return whether both owners are resources of the same stack."""
    first, second = parse_owner(one), parse_owner(other)
    return (
        isinstance(first, StackOwner)
        and isinstance(second, StackOwner)
        and replace(first, name="") == replace(second, name="")
    )


def default_cluster_name(cluster_uid: str) -> str:
    """Return the cluster's name where nobody gave one: the first 8 characters of the kube-system UID."""
    return cluster_uid[:8]


def check_cluster_name(name: str) -> str:
    """Return ``name`` if it may be a cluster's name.

    :raises ConfigurationError: ``name`` is no DNS label of at most 40 characters.
    """
    if len(name) > 40 or not _CLUSTER_NAME_PATTERN.match(name):
        raise ConfigurationError(
            f"cluster name {name!r} must be lower-case letters, digits and dashes, at most 40 characters:"
            " it becomes part of every instance id"
        )
    return name


def pod_instance_id(pod: str, namespace: str, cluster: str, application: str, port: int) -> str:
    """Return the id of a pod's instance: ``<pod>.<namespace>.<cluster>:<application>:<port>``.

    :param pod: the pod's name, or its address where the endpoint has no targetRef; or
        :func:`service_part_of_id`.
    :param application: any case; the id carries it in lower case, as Spring's own ids do.
    """
    return f"{pod}.{namespace}.{cluster}:{application.lower()}:{port}"


def service_part_of_id(service: str, node: str = "") -> str:
    """Return what the id of a whole Service's instance has in place of a pod's name; ``.svc`` keeps it apart
    from a pod of the same name.

    :param node: the node of an additional instance. A namespace has no dots, so that the id is never another
        Service's.
    """
    return f"{service}.svc.{node}" if node else f"{service}.svc"


def pod_and_namespace_of_id(instance_id: str) -> tuple[str, str]:
    """Return the pod (or address) and the namespace of an id that :func:`pod_instance_id` made.

    The id may have any name of the cluster (which has no dot), such as the one at the time of registration.
    """
    # From the end, since the address of an endpoint without a pod may have colons of its own.
    place = instance_id.rsplit(":", 2)[0].rsplit(".", 2)
    return (place[0], place[1]) if len(place) == 3 else ("", "")


def cluster_part_of_id(application: str, cluster: str) -> str:
    """Return the part that all ids of an application have that were made with this name of the cluster."""
    return f".{cluster}:{application.lower()}:"


def id_without_cluster(instance_id: str) -> str:
    """Return an id without the cluster's name, by which ids of one endpoint under several names are equal."""
    place, *rest = instance_id.rsplit(":", 2)
    return ":".join([place.rpartition(".")[0], *rest])


def id_with_cluster(instance_id: str, cluster: str) -> str:
    """Return the id that an endpoint has under another name of the cluster."""
    place, *rest = instance_id.rsplit(":", 2)
    return ":".join([f"{place.rpartition('.')[0]}.{cluster}", *rest])


def label_to_metadata_key(label: str) -> str:
    """Turn a Kubernetes label's key into a metadata key, always the same one.

    Metadata keys travel as XML element names: some clients receive an invalid name escaped, and also an
    underscore, which marks an escape. Slashes become dots, other characters that are not allowed become
    dashes, and a key that does not start with a letter gets ``x-`` before it.

    >>> label_to_metadata_key("app.kubernetes.io/part-of")
    'app.kubernetes.io.part-of'
    """
    fitted = re.sub(r"[^A-Za-z0-9.\-]", "-", label.replace("/", "."))
    return fitted if re.match(r"[A-Za-z]", fitted) else f"x-{fitted}"


def check_metadata_key(key: str) -> str:
    """Return ``key`` if all of Eureka's clients read it as written.

    :raises InvalidInstance: the key would arrive escaped at clients that read XML.
    """
    if not _METADATA_KEY_PATTERN.match(key):
        raise InvalidInstance(
            "metadata",
            f"key {key!r} would not arrive as written, since Eureka sends keys as XML element names:"
            " use letters, digits, dots and dashes, starting with a letter, e.g. "
            f"{label_to_metadata_key(key)!r}",
        )
    return key

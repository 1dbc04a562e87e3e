"""The operator's requirements, checked when it starts: rights, CRDs, Eureka servers.

The check only reports. A missing requirement may be met later, and all that works without it goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from eurekube_provider.core.address_policy import parse_ip_address
from eurekube_provider.core.errors import (
    ConfigurationError,
    KubernetesError,
    RegistryDenied,
    RegistryError,
    RegistryUnreachable,
)
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.core.registry_kinds import EUREKA
from eurekube_provider.core.syncer import Advertise
from eurekube_provider.core.wording import format_list
from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.eureka.peers import FEWEST_LEASES_FOR_BATCHES, Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.kube.access import SYNCERS, KubeAccess, namespace_exists
from eurekube_provider.kube.rights import (
    CLUSTER_RULES,
    DERIVED_SYNCER_RULE,
    GATE_NAMESPACE_RULES,
    MIRROR_CLUSTER_RULES,
    MIRROR_NAMESPACE_RULES,
    NAMESPACE_RULES,
    ROUTE_NAMESPACE_RULE_BY_ADVERTISE,
    Rule,
    election_rules,
    pulumi_stack_rule,
)
from eurekube_provider.operator.identity_check import (
    CheckResult,
    CheckVerdict,
    name_and_namespace_findings,
)
from eurekube_provider.operator.leadership import find_lease_namespace
from eurekube_provider.operator.registries import zookeeper_servers
from eurekube_provider.operator.route_watches import ROUTE_KINDS
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.triggers.targets import PulumiStack

if TYPE_CHECKING:
    from eurekube_provider.zookeeper.servers import ZooKeeperServers

_log = logging.getLogger(__name__)

ACCESS_REVIEWS_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

LARGEST_CLOCK_DIFFERENCE_SECONDS = 30.0
"""Greatest difference in seconds between this machine's clock and a server's that is no warning."""

CHECK_DELAY_SECONDS = 3.0
"""Seconds before the self-check begins, so that it does not slow down the start."""

MISSING_RIGHT_EFFECTS = {
    "eurekasyncers": "without it no syncer can be served",
    "eurekasyncers/status": "without it syncers show no status; everything else works",
    "stackrefreshes": "without it no StackRefresh can be served; everything else works",
    "stackrefreshes/status": "without it no StackRefresh can be served; everything else works",
    "stacks": "without it a target of the kind pulumiStack cannot run; everything else works",
    "services": "without it nothing is registered or changed",
    "endpointslices": "without it nothing is registered or changed",
    "events": "without it no Events are written; everything else works",
    "pods": "without it metadataFromPodLabels and advertise: HostPort do not work, DrainTooShort is not"
    " reported, and what a refused syncer has registered stays though its pod ended while no operator "
    "watched; the rest works",
    "pods/status": "without it no pod that declares the readiness gate becomes ready; everything else works",
    **dict.fromkeys(
        ("deployments", "statefulsets", "daemonsets"),
        "without it the uninstallation is refused where readiness gates are served; everything else works",
    ),
    "nodes": "without it advertise: NodePort does not work; everything else does",
    "ingresses": "without it advertise: Ingress does not work; everything else does",
    **dict.fromkeys(
        ("gateways", "httproutes"), "without it advertise: Gateway does not work; everything else does"
    ),
    "leases": "without it no replica leads, and nothing is registered or changed; where there is one replica"
    " only, --leader-elect false does without",
    "namespaces": "without it the operator cannot start, since the UID of kube-system tells clusters apart",
}


INSTALL_CRDS_COMMAND = "`eurekube crds | kubectl apply -f -`"

CRD_KINDS = {
    "eurekasyncers": ("EurekaSyncer", "nothing is registered", CheckVerdict.WARNING),
    "stackrefreshes": ("StackRefresh", "no stack is triggered, and all else works", CheckVerdict.NOTE),
    "eurekamirrors": ("EurekaMirror", "nothing is mirrored, and all else works", CheckVerdict.WARNING),
}
"""Eurekube's kinds by the name of their CRD: the kind, the effect of a missing CRD, and the verdict on it."""


def run_checks(settings: Settings, *, in_full: bool = True) -> list[CheckResult]:
    """Run all checks and return their results; change nothing and raise nothing.

    :param in_full: True to read Eureka's instances as well, which a running operator reads anyway, and the
        Lease's namespace, which it may not read.
    """
    findings: list[CheckResult] = []
    try:
        access = KubeAccess.load(settings.kubeconfig, settings.context)
    except ConfigurationError as error:
        findings.append(CheckResult("kubernetes", "kubeconfig", CheckVerdict.WARNING, str(error)))
        in_full = False
    else:
        lease = settings.lease_namespace_and_name(access.namespace) if settings.leader_elect else None
        ways = [target.run_method for target in settings.targets.values()]
        stacks = [way for way in ways if isinstance(way, PulumiStack)]
        findings += check_kubernetes(
            access,
            settings.watch_namespaces,
            lease,
            stacks,
            serves_mirrors=settings.mirrors,
            gate_namespaces=settings.watched_gate_namespaces,
            advertise_from=settings.advertise_from,
        )
        if in_full and lease is not None and not namespace_exists(access, lease[0]):
            explanation = (
                "the cluster has no such namespace, and the operator's Lease would be there: until it is,"
                " no replica leads, and nothing is registered or changed; create it, or name another one"
                " with --lease-namespace"
            )
            findings.append(CheckResult("namespace", lease[0], CheckVerdict.WARNING, explanation))
    every: dict[str, Peers] = {}
    for name, connection in settings.connections.items():
        if connection.registry_kind == EUREKA:
            every[name] = Peers(connection)
        else:
            with closing(zookeeper_servers(connection)) as servers:
                findings += check_zookeeper(name, servers, () if in_full else None)
    for name, peers in every.items():
        findings += check_encryption(name, peers.connection)
        findings += check_eureka(name, peers)
    if in_full:
        findings += _check_names(settings, access, list(every.values()))
    for peers in every.values():
        peers.close()
    return findings


def _check_names(settings: Settings, access: KubeAccess, eurekas: Sequence[Peers]) -> Iterator[CheckResult]:
    instances: list[Instance] = []
    are_all_listed = True
    for peers in eurekas:
        try:
            instances += peers.list_instances()
        except RegistryError:  # which was said where it was tried
            are_all_listed = False

    def read_instances(keys: Iterable[InstanceKey]) -> list[Instance]:
        found: list[Instance] = []
        for key in keys:
            for peers in eurekas:
                with suppress(RegistryError):
                    found += [one for one in [peers.read(*key)] if one is not None]
        return found

    lease = settings.lease_namespace_and_name(access.namespace)
    if settings.leader_elect and settings.lease_namespace is None and not access.is_in_cluster:
        try:
            lease = find_lease_namespace(access, *lease), lease[1]
        except ConfigurationError as error:
            yield CheckResult("name", lease[1], CheckVerdict.WARNING, str(error))
        except KubernetesError:  # which was said where it was tried
            return
    yield from name_and_namespace_findings(
        settings, access, lease, instances, read_instances, are_all_listed=are_all_listed
    )


def check_kubernetes(
    access: KubeAccess,
    namespaces: Sequence[str],
    lease: tuple[str, str] | None = None,
    stacks: Sequence[PulumiStack] = (),
    *,
    serves_mirrors: bool = False,
    gate_namespaces: Sequence[str | None] = (),
    advertise_from: Collection[Advertise] = (),
) -> list[CheckResult]:
    """Check that the API answers, serves the CRDs, and grants the operator's rights.

    :param namespaces: the namespaces to check; empty for all.
    :param lease: namespace and name of the Lease, None where there is no election.
    """
    kinds = [crd for crd in CRD_KINDS if serves_mirrors or crd != "eurekamirrors"]
    try:
        answer = access.get(f"/apis/{SYNCERS.group}/{SYNCERS.version}")
        findings = list(_crd_results(kinds, {item["name"] for item in answer.get("resources") or ()}))
    except KubernetesError as error:
        if error.status_code is None:
            return [CheckResult("kubernetes", access.server, CheckVerdict.WARNING, str(error))]
        if error.status_code == 404:
            findings = list(_crd_results(kinds, set()))
        else:
            findings = [CheckResult("crd", "eurekasyncers", CheckVerdict.WARNING, str(error))]
    places = namespaces or ("",)
    scopes = [(rule, place) for place in places for rule in NAMESPACE_RULES]
    if serves_mirrors:
        scopes += [(rule, "") for rule in MIRROR_CLUSTER_RULES]
        scopes += [(rule, place) for place in places for rule in MIRROR_NAMESPACE_RULES]
    scopes += [(rule, namespace or "") for namespace in gate_namespaces for rule in GATE_NAMESPACE_RULES]
    scopes += [(ROUTE_NAMESPACE_RULE_BY_ADVERTISE[one], place) for place in places for one in advertise_from]
    findings += _check_route_kinds(access, advertise_from)
    if lease is not None:
        scopes += [(rule, lease[0]) for rule in election_rules(lease[1])]
    scopes += [(pulumi_stack_rule(stack.name), stack.namespace) for stack in stacks]
    for rule, namespace in (*((rule, "") for rule in CLUSTER_RULES), *scopes):
        try:
            findings += _permission_results(access, rule, namespace)
        except KubernetesError as error:
            explanation = f"it cannot be found out what is allowed: {error}"
            findings.append(CheckResult("permission", "all", CheckVerdict.WARNING, explanation))
            break
    return findings


def _check_route_kinds(access: KubeAccess, advertise_from: Collection[Advertise]) -> Iterator[CheckResult]:
    """Yield a note for each kind of route that addresses need and that the cluster does not know."""
    for advertise in advertise_from:
        for kind in ROUTE_KINDS[advertise].values():
            if not access.serves_kind(kind):
                explanation = (
                    f"the cluster does not know {kind.plural}.{kind.group}: until that CRD is installed,"
                    f" advertise: {advertise} does not work; everything else does"
                )
                yield CheckResult("crd", kind.plural, CheckVerdict.NOTE, explanation)


def _crd_results(kinds: Sequence[str], known: set[str]) -> Iterator[CheckResult]:
    for crd in kinds:
        kind, consequence, verdict = CRD_KINDS[crd]
        explanation = (
            f"the cluster does not know the kind {kind}: install it with {INSTALL_CRDS_COMMAND}; until then "
            f"{consequence}"
        )
        is_there = CheckResult("crd", crd, CheckVerdict.OK, "installed")
        yield is_there if crd in known else CheckResult("crd", crd, verdict, explanation)


def _permission_results(access: KubeAccess, rule: Rule, namespace: str) -> Iterator[CheckResult]:
    """Yield a verdict on the permissions that a rule grants for each resource.

    :param namespace: empty for the whole cluster.
    """
    for resource in rule.resources:
        missing = [
            verb for verb in rule.verbs if not _is_verb_allowed(access, rule, resource, verb, namespace)
        ]
        named = f" {', '.join(rule.resource_names)}" if rule.resource_names else ""
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        place = "" if rule in (*CLUSTER_RULES, *MIRROR_CLUSTER_RULES) else f" {where}"
        subject = f"{', '.join(missing or rule.verbs)} {resource}{named}{place}"
        if missing:
            explanation = (
                f"not allowed; {_missing_right_effect(rule, resource)}. Allow it to the operator's "
                "ServiceAccount with a Role or ClusterRole and its binding"
            )
            if namespace and rule in (
                *NAMESPACE_RULES,
                *MIRROR_NAMESPACE_RULES,
                *ROUTE_NAMESPACE_RULE_BY_ADVERTISE.values(),
            ):
                explanation += ", or take the namespace off --watch-namespace if it is no longer there"
            yield CheckResult("permission", subject, CheckVerdict.WARNING, explanation)
        else:
            yield CheckResult("permission", subject, CheckVerdict.OK, "allowed")


def _missing_right_effect(rule: Rule, resource: str) -> str:
    if rule in (*MIRROR_CLUSTER_RULES, *MIRROR_NAMESPACE_RULES):
        return "without it nothing is mirrored; everything else works"
    if rule == DERIVED_SYNCER_RULE:
        return "without it no Service joins a syncer of its namespace; everything else works"
    return MISSING_RIGHT_EFFECTS[resource]


def _is_verb_allowed(access: KubeAccess, rule: Rule, resource: str, verb: str, namespace: str) -> bool:
    plural, _, subresource = resource.partition("/")
    attributes = {
        "verb": verb,
        "group": rule.api_groups[0],
        "resource": plural,
        "subresource": subresource,
        "namespace": namespace,
        "name": rule.resource_names[0] if rule.resource_names else "",
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    status = access.request("POST", ACCESS_REVIEWS_PATH, body=review).get("status") or {}
    return bool(status.get("allowed"))


def check_encryption(name: str, connection: Connection) -> list[CheckResult]:
    """Return a warning if a connection sends its password or token by plain http; empty if it does not.

    A server on this machine, such as a proxy that speaks https, is no reason to warn.
    """
    what = "password" if connection.token is None else "token"
    parts = [urlsplit(url) for url in connection.service_urls]
    plain = [
        one.netloc for one in parts if one.scheme == "http" and not _is_loopback_host(one.hostname or "")
    ]
    if not plain or connection.password is connection.token is None:
        return []
    explanation = (
        f"the {what} is sent to {', '.join(plain)} by plain http, where anyone on the way reads it: use"
        " https URLs, or a proxy beside the operator that speaks https"
    )
    return [CheckResult("encryption", name, CheckVerdict.WARNING, explanation)]


def _is_loopback_host(host: str) -> bool:
    address = parse_ip_address(host)
    return host == "localhost" if address is None else address.is_loopback


def check_zookeeper(
    name: str, servers: ZooKeeperServers, addresses: Container[str] | None
) -> list[CheckResult]:
    """Check that a ZooKeeper can be read, that its password is encrypted, and that no dead nodes are left.

    :param addresses: addresses of pods, whose nodes count as in use; None to skip the search for such nodes.
    """
    subject = f"{name} {servers.url}"
    try:
        left = {} if addresses is None else servers.nodes_of_ended_operators(addresses)
        servers.connect()
    except RegistryError as error:
        return [CheckResult("zookeeper", subject, CheckVerdict.WARNING, str(error))]
    findings = [CheckResult("zookeeper", subject, CheckVerdict.OK, "answers")]
    connection = servers.connection
    hosts = [urlsplit(url).hostname or "" for url in connection.service_urls]
    if connection.user and not connection.is_encrypted and not all(map(_is_loopback_host, hosts)):
        explanation = (
            "the password is sent as plain text, where anyone on the way reads it: use zookeepers://"
        )
        findings.append(CheckResult("encryption", name, CheckVerdict.WARNING, explanation))
    for cluster, nodes in left.items():
        explanation = (
            f"no operator of cluster {cluster} has written for minutes, and what it left stays until "
            f"somebody removes it ({format_list([one.path for one in nodes], 3)}): start that operator, or "
            f"see eurekube keepalive --zookeeper --cluster-name {cluster}"
        )
        findings.append(CheckResult("marker", subject, CheckVerdict.WARNING, explanation))
    return findings


def check_eureka(name: str, peers: Peers) -> list[CheckResult]:
    """Check that each server answers and accepts the credentials, and that batches can be used."""
    findings = [finding for peer in peers.peers for finding in _check_server(name, peer)]
    for url, other in peers.find_duplicate_urls().items():
        explanation = f"it is the same server as {other}, which counts as two: keep one of the two URLs"
        findings.append(CheckResult("eureka", f"{name} {url}", CheckVerdict.WARNING, explanation))
    if any(finding.check == "eureka" and finding.verdict is CheckVerdict.OK for finding in findings):
        findings.append(_check_batches(name, peers))
    return findings


def _check_server(name: str, peer: Peer) -> Iterator[CheckResult]:
    subject = f"{name} {peer.url}"
    try:
        status = peer.read_status()
    except RegistryUnreachable as error:
        explanation = f"not reachable: {error}"
    except RegistryError as error:
        explanation = _explain_missing_status(peer, error)
    else:
        up = f"answers, up for {status.uptime or 'an unknown time'}"
        yield CheckResult("eureka", subject, CheckVerdict.OK, up)
        ahead = status.clock_ahead_seconds
        if ahead is not None and abs(ahead) > LARGEST_CLOCK_DIFFERENCE_SECONDS:
            apart = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
            hint = "set both by NTP, since the newer of two registrations is found by the clock"
            yield CheckResult("clock", subject, CheckVerdict.WARNING, f"its clock is {apart}: {hint}")
        return
    yield CheckResult("eureka", subject, CheckVerdict.WARNING, explanation)


def _explain_missing_status(peer: Peer, error: RegistryError) -> str:
    """Explain in a sentence why a server that answers does not show its status, and the effect."""
    try:
        peer.list_instances()
    except RegistryDenied as denied:
        return f"it refuses us: {denied}"
    except RegistryError:
        return str(error)
    return (
        "its registry can be read, and its status cannot, so that a restart is noticed late and no batches"
        f" are sent: let GET /status through, and POST /peerreplication/batch/ ({error})"
    )


def _check_batches(name: str, peers: Peers) -> CheckResult:
    if peers.connection.mode is not BatchMode.AUTO:
        return CheckResult("batches", name, CheckVerdict.NOTE, f"the mode is {peers.connection.mode}")
    obstacle = peers.topology.find_batch_obstacle()
    if obstacle is None:
        explanation = f"can be used, from {FEWEST_LEASES_FOR_BATCHES} Eureka leases on"
        return CheckResult("batches", name, CheckVerdict.OK, explanation)
    return CheckResult("batches", name, CheckVerdict.NOTE, f"single requests are sent: {obstacle}")


class BackgroundSelfCheck:
    """The self-check on a thread of its own, logged after the other parts have had time to start."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._now = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="self-check", daemon=True)
        self._thread.start()

    def run_now_and_wait(self, timeout_seconds: float) -> None:
        """Check now, and wait for the end within the time-out: the log must say what is missing."""
        self._now.set()
        self._thread.join(timeout=timeout_seconds)

    def close(self) -> None:
        """Cancel a check that has not begun, since the operator ends."""
        self._is_closed = True
        self._now.set()

    def _run(self) -> None:
        self._now.wait(CHECK_DELAY_SECONDS)
        if not self._is_closed:
            log_results(run_checks(self._settings, in_full=False))


def log_results(findings: Sequence[CheckResult]) -> None:
    """Log one line for each result; a warning for each that hampers the operator."""
    for finding in findings:
        if finding.verdict is CheckVerdict.WARNING:
            _log.warning("self-check found a fault, going on", extra=asdict(finding))
        else:
            _log.info("self-check found no fault, going on", extra=asdict(finding))


def format_results(findings: Sequence[CheckResult]) -> str:
    """Return the results as a list for a person."""
    lines = [f"{item.verdict:<8} {item.check:<11} {item.subject}: {item.detail}" for item in findings]
    warnings = sum(item.verdict is CheckVerdict.WARNING for item in findings)
    total = "all is well" if not warnings else f"{warnings} to fix"
    return "\n".join([*lines, f"{len(findings)} looked at, {total}"]) + "\n"

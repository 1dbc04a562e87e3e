"""Checks of Eureka's servers, and of instances that callers cannot use or would find twice. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eurekube_provider.core.address_policy import parse_ip_address
from eurekube_provider.core.identity import Cluster, parse_owner
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import pod_name_of_endpoint, qualified_name
from eurekube_provider.core.registry_kinds import registry_kind_of_instance
from eurekube_provider.core.self_registered import is_certainly_registered_by_pod
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.core.wording import format_count, format_list
from eurekube_provider.doctor.finding import Fault, Finding
from eurekube_provider.doctor.syncer_checks import describe_syncer, syncer_spec_patch
from eurekube_provider.doctor.workload_checks import SelectedService, Workload, environment_patch
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.self_preservation import RENEWALS_PER_INSTANCE_AND_MINUTE, FrontPage

REGISTER_WITH_EUREKA_VARIABLE = "EUREKA_CLIENT_REGISTER_WITH_EUREKA"
"""The environment variable of Spring's ``eureka.client.register-with-eureka``."""

PREFER_IP_ADDRESS_VARIABLE = "EUREKA_INSTANCE_PREFER_IP_ADDRESS"

INSTANCE_FULLY_COUNTED_AFTER_SECONDS = 240
"""Seconds after which an instance counts fully in a server's renewals of the last minute."""

_RENEWAL_THRESHOLD_SHARE = 0.85
_MAX_LISTED_NAMES = 5


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod's name and address, and the workload that runs it."""

    name: str
    address: str
    workload: Workload


def self_registered_by_address(instances: Iterable[Instance]) -> dict[str, list[Instance]]:
    """Group instances without an owner, which registered themselves, by their addresses."""
    found: dict[str, list[Instance]] = defaultdict(list)
    for one in instances:
        if not one.owner:
            found[one.ip_address].append(one)
    return found


def self_registered_findings(
    syncer: Syncer,
    selected: SelectedService,
    self_registered: Mapping[str, Sequence[Instance]],
    pods: Mapping[str, Pod],
) -> Iterator[Finding]:
    """Yield findings about pods of a syncer that register themselves, too, at any port or by name.

    :param self_registered: the instances in the syncer's Eureka, by :func:`self_registered_by_address`.
    :param pods: the cluster's pods by address, without those that share their node's.
    """
    found: dict[str, Instance] = {}
    beside = [
        one
        for those in self_registered.values()
        for one in those
        if not syncer.names.isdisjoint(map(str.lower, (one.application, *_split_vip_addresses(one))))
    ]
    for each in selected.slices if beside else ():
        ports = {port.get("port") for port in each.get("ports") or ()}
        for endpoint in each.get("endpoints") or ():
            address, name = endpoint["addresses"][0], pod_name_of_endpoint(endpoint)
            for one in beside:
                is_here = one.ip_address == address and (one.port.number in ports or address in pods)
                if is_here or (
                    name and is_certainly_registered_by_pod(one, name, syncer.selector.namespace, address)
                ):
                    found[one.instance_id] = one
    twins = list(found.values())
    if not twins:
        return
    ids = format_list([one.instance_id for one in twins], _MAX_LISTED_NAMES)
    for workload in selected.workloads or (None,):
        subject, patch = f"Service {qualified_name(selected.service)}", None
        if workload:
            subject = workload.subject
            patch = environment_patch(workload, REGISTER_WITH_EUREKA_VARIABLE, "false", twins[0].port.number)
        yield Finding(
            Fault.SELF_REGISTERED,
            subject,
            f"its pods register themselves as {twins[0].application} ({ids}), beside the EurekaSyncer"
            f" {syncer.namespace}/{syncer.name}: what it finds there it leaves alone, and that leaves"
            " Eureka when the process ends, not before",
            f"switch their Eureka client's registration off: {REGISTER_WITH_EUREKA_VARIABLE}=false",
            patch,
        )


def _split_vip_addresses(registered: Instance | Syncer) -> list[str]:
    return [name.strip() for name in registered.vip_address.split(",") if name.strip()]


def host_name_findings(
    instances: Iterable[Instance], pods: Mapping[str, Pod], syncer_addresses: frozenset[str], domain: str
) -> Iterator[Finding]:
    """Yield findings about instances whose host name only the cluster can resolve. A self-registered one at
    an address that a syncer registers has a finding already.
    """
    for one in instances:
        if one.owner and one.owner.startswith("cluster/"):
            continue  # the syncer has the finding
        host, pod = one.host_name, pods.get(one.ip_address)
        if parse_ip_address(host) or (pod is not None and one.ip_address in syncer_addresses):
            continue
        inside = host.endswith((".svc", f".svc.{domain}", ".svc.cluster.local", ".pod.cluster.local"))
        if not inside and (pod is None or (host != pod.name and "." in host)):
            continue
        problem = f"{_instance_name(one)} has the host name {host}, which only the cluster can resolve"
        subject, remedy, patch = _instance_name(one), "register it with its address as host name", None
        if pod is not None and not one.owner:
            subject = pod.workload.subject
            remedy = f"have the client register its address: {PREFER_IP_ADDRESS_VARIABLE}=true"
            patch = environment_patch(pod.workload, PREFER_IP_ADDRESS_VARIABLE, "true", one.port.number)
        yield Finding(Fault.UNRESOLVABLE_HOST_NAME, subject, problem, remedy, patch)


def secure_port_findings(instances: Iterable[Instance]) -> Iterator[Finding]:
    """Yield findings about instances that offer https and http on the same port."""
    for one in instances:
        if one.secure_port.enabled and one.port.enabled and one.secure_port.number == one.port.number:
            yield Finding(
                Fault.SECURE_PORT_BY_MISTAKE,
                _instance_name(one),
                f"its port {one.port.number} is offered for http and for https, and Spring calls https",
                "switch one of them off: eureka.instance.secure-port-enabled or"
                " eureka.instance.non-secure-port-enabled, or the registration's secure port",
            )


def vip_case_findings(
    instances: Iterable[Instance], syncers: Iterable[Syncer], cluster: Cluster
) -> Iterator[Finding]:
    """Yield findings about VIP addresses, perhaps of these syncers, that differ in upper and lower case."""
    spellings: dict[str, dict[str, list[Instance]]] = defaultdict(lambda: defaultdict(list))
    for one in instances:
        for vip in _split_vip_addresses(one):
            spellings[vip.lower()][vip].append(one)
    known = {(one.namespace, one.name): one for one in syncers}
    for ways in spellings.values():
        if len(ways) < 2:
            continue
        # The most frequent spelling wins: one foreign instance must not make a syncer rename all of its
        # instances. Between equally frequent ones, the spelling that Eurekube did not register wins.
        wanted = max(
            ways,
            key=lambda vip: (
                len(ways[vip]),
                sum(parse_owner(one.owner) is None for one in ways[vip]),
                vip.islower(),
            ),
        )
        listed_ways = ", ".join(
            f"{vip} ({len(held)}, e.g. {held[0].instance_id})" for vip, held in ways.items()
        )
        keys = {
            (owner.namespace, owner.syncer)
            for vip, held in ways.items()
            for one in held
            if vip != wanted and (owner := cluster.parse_syncer_of_this_cluster(one.owner)) is not None
        }
        changed = [known[key] for key in sorted(keys & known.keys())]
        for syncer in changed or (None,):
            vips = _split_vip_addresses(syncer) if syncer else ()
            renamed = ",".join(wanted if vip.lower() == wanted.lower() else vip for vip in vips)
            yield Finding(
                Fault.MIXED_VIP_CASE,
                describe_syncer(syncer) if syncer else f"VIP address {wanted}",
                f"Eureka holds one VIP address in several spellings: {listed_ways}; servers take them for"
                " several, and callers that ask for one find some of the instances only",
                f"spell it {wanted} everywhere" + (f": set spec.vipAddress to {renamed}" if syncer else ""),
                syncer_spec_patch(syncer, vipAddress=renamed) if syncer else None,
            )


def self_preservation_findings(
    url: str, front_page: FrontPage, instances: Iterable[Instance], now_seconds: float
) -> Iterator[Finding]:
    """Yield a finding about a server that gets too few renewals, or would if one more were missing.

    A server expects renewals of instances younger than :data:`INSTANCE_FULLY_COUNTED_AFTER_SECONDS` too
    early, as in every rollout: only missing renewals of older ones count. The time is Unix time.
    """
    oldest = (now_seconds - INSTANCE_FULLY_COUNTED_AFTER_SECONDS) * 1000
    gives_way = (now_seconds - windows.OLDER_THAN_ANY_REGISTRATION_SECONDS / 2) * 1000

    def changed_ms(one: Instance) -> float:
        """Return when an instance was last changed; if it gives way to any other, the server knows that."""
        dirty = one.last_dirty_timestamp_ms or oldest
        return dirty if dirty > gives_way else one.last_updated_timestamp_ms or oldest

    settled = sum(1 for one in instances if changed_ms(one) < oldest)
    expected = RENEWALS_PER_INSTANCE_AND_MINUTE * settled * _RENEWAL_THRESHOLD_SHARE
    if front_page.is_in_or_near_self_preservation and front_page.renewals_last_minute < expected:
        yield Finding(
            Fault.SELF_PRESERVATION_NEAR,
            f"Eureka server {url}",
            f"it got {front_page.renewals_last_minute} heartbeats in the last minute and needs more than "
            f"{front_page.renewals_threshold}: it forgets no instance any more, not even those that are gone",
            "find whose heartbeats are missing: deregister instances that run no more, start what should"
            " renew (the operator, eurekube keepalive), and let clients renew every 30 s",
        )


def unreadable_findings(name: str, instances: Iterable[Instance]) -> Iterator[Finding]:
    """Yield a finding about instances of a connection that can be listed, but neither read nor drained."""
    names = [f"{one.application} {one.instance_id} ({one.unreadable})" for one in instances if one.unreadable]
    if names:
        yield Finding(
            Fault.UNREADABLE_INSTANCE,
            f"Eureka {name}",
            f"{format_count(len(names))} cannot be read or asked for, so that nothing can drain them or "
            f"prove that they left: {format_list(names, _MAX_LISTED_NAMES)}",
            "have their clients register under an instanceId without slashes, percent signs and the like "
            "(eureka.instance.instance-id), at an address in its plain form; an entry of other software "
            "must be removed by its author",
        )


def stuck_out_of_service_findings(instances: Iterable[Instance]) -> Iterator[Finding]:
    """Yield findings about applications whose own first registration was OUT_OF_SERVICE."""
    by_application: dict[str, list[str]] = defaultdict(list)
    for one in instances:
        if one.is_self_registered_out_of_service and registry_kind_of_instance(one).overrides:
            by_application[one.application].append(one.instance_id)
    for application, ids in sorted(by_application.items()):
        yield Finding(
            Fault.STUCK_OUT_OF_SERVICE,
            f"application {application}",
            f"registered itself as OUT_OF_SERVICE ({format_list(ids, _MAX_LISTED_NAMES)}): Eureka keeps "
            "that whatever the application says since, and no caller finds it",
            "if it is to be called: eurekube undrain, with the id of each; and have it register as STARTING"
            " or DOWN in place of OUT_OF_SERVICE",
        )


Disagreement = tuple[tuple[str, str], Mapping[str, Status | None]]
"""Key of an instance, and its status at each server, by URL; None where a server does not hold it."""


def disagreement_findings(name: str, disagreements: Sequence[Disagreement]) -> Iterator[Finding]:
    """Yield a finding about servers of one connection that hold different instances."""
    if not disagreements:
        return
    parts = [
        f"{application} {instance_id} ("
        + ", ".join(f"{status or 'not there'} at {url}" for url, status in held.items())
        + ")"
        for (application, instance_id), held in disagreements
    ]
    yield Finding(
        Fault.PEERS_DISAGREE,
        f"Eureka {name}",
        f"its servers do not hold the same: {format_list(parts, _MAX_LISTED_NAMES)}",
        "have each server name all others in eureka.client.service-url.defaultZone, under host names that"
        " differ, and let them reach each other; each tells the others only of what it gets itself",
    )


def _instance_name(instance: Instance) -> str:
    return f"{instance.application} {instance.instance_id}"

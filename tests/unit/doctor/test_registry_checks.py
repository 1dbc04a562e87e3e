"""The doctor's findings about syncers, instances in Eureka and its servers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.remedies import SYNCER_REMEDIES
from eurekube_provider.core.service_choice import choose_services
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.doctor import registry_checks
from eurekube_provider.doctor.checks import check_snapshot
from eurekube_provider.doctor.finding import Fault, Finding
from eurekube_provider.doctor.reader import EurekaSnapshot, Snapshot
from eurekube_provider.doctor.syncer_checks import (
    condition_findings,
    host_name_findings,
    lease_findings,
    secure_port_findings,
    service_findings,
)
from eurekube_provider.doctor.workload_checks import SelectedService, Workload, WorkloadRequirements
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.self_preservation import FrontPage

CLUSTER = Cluster("lab", "uid-1")
NOW = 1_800_000_000.0


def held(instance_id: str, **fields: Any) -> Instance:
    """Return an instance of ORDER as Eureka holds it."""
    return Instance("ORDER", instance_id, "vm", "10.0.0.9", Port(8080), **fields)


def test_what_cannot_be_asked_for_is_found() -> None:
    """Instances that no request can name are one finding with their reasons, shortened if they are many."""
    odd = [held(f"a/{number}", unreadable=f"no request can name {number}") for number in range(7)]
    (found,) = registry_checks.unreadable_findings("default", [held("good"), *odd])
    assert (found.fault, found.subject) == (Fault.UNREADABLE_INSTANCE, "Eureka default")
    assert found.problem.startswith("7 instances cannot be read or asked for")
    assert "ORDER a/0 (no request can name 0)" in found.problem
    assert list(registry_checks.unreadable_findings("default", [held("good")])) == []


def test_who_registered_itself_out_of_service_is_found() -> None:
    """An instance that registered itself as OUT_OF_SERVICE is a finding; a status set by a person or
    Eurekube is not.
    """
    out = Status.OUT_OF_SERVICE
    by_person = held("person", status=out, overridden_status=out)
    by_stack = held("stack", status=out, metadata={"eurekube.owner": "stack/a/b/c/d"})
    (found,) = registry_checks.stuck_out_of_service_findings(
        [held("up"), by_person, by_stack, held("stuck", status=out)]
    )
    assert (found.fault, found.subject) == (Fault.STUCK_OUT_OF_SERVICE, "application ORDER")
    assert "(stuck)" in found.problem
    assert "eurekube undrain" in found.remedy


def item(mode: str = "pod", conditions: Any = None, **spec: Any) -> dict[str, Any]:
    """Return a EurekaSyncer object for the Service rating."""
    found = {
        "metadata": {"namespace": "shop", "name": "rating"},
        "spec": {"mode": mode, "selector": {"app": "rating"}, **spec},
    }
    return found if conditions is None else {**found, "status": {"conditions": conditions}}


def syncer(mode: str = "pod", **spec: Any) -> Syncer:
    """Return a parsed syncer."""
    return Syncer.from_object(item(mode, **spec))


def service(*ports: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return the Service rating with these ports."""
    metadata = {"namespace": "shop", "name": "rating", "labels": {"app": "rating"}}
    return {"metadata": metadata, "spec": {"ports": list(ports), "selector": {"app": "rating"}, **spec}}


def endpoints(*ports: dict[str, Any], of: str = "rating") -> dict[str, Any]:
    """Return a Service's EndpointSlice with one pod at 10.0.0.1."""
    labels = {"kubernetes.io/service-name": of}
    metadata = {"namespace": "shop", "name": "rating-x", "labels": labels}
    return {"metadata": metadata, "ports": list(ports), "endpoints": [{"addresses": ["10.0.0.1"]}]}


def deployment(**container: Any) -> Workload:
    """Return the Deployment that runs the Service's pods."""
    one = {"name": "app", "ports": [{"name": "web", "containerPort": 8443}], **container}
    template = {"metadata": {"labels": {"app": "rating"}}, "spec": {"containers": [one]}}
    metadata = {"namespace": "shop", "name": "rating"}
    return Workload("Deployment", {"metadata": metadata, "spec": {"template": template}})


def instance(place: str = "10.0.0.1", app: str = "rating", host: str = "", **more: Any) -> Instance:
    """Return an instance, self-registered unless an owner is given."""
    owner = more.pop("owner", "")
    metadata = {"eurekube.owner": owner} if owner else {}
    return Instance(
        app, f"{host or place}:{app}", host or place, place, Port(8080), metadata=metadata, **more
    )


def test_a_lease_that_is_too_short() -> None:
    """A lease too short for its renewal interval is a finding, and the patch sets the shortest sufficient
    one.
    """
    assert list(lease_findings(syncer())) == []
    (finding,) = lease_findings(syncer(lease={"renewalIntervalSeconds": 5, "durationSeconds": 8}))
    assert finding.patch is not None
    assert finding.patch.body == {"spec": {"lease": {"durationSeconds": 12}}}
    fixed = syncer(lease={"renewalIntervalSeconds": 5, "durationSeconds": 12})
    assert list(lease_findings(fixed)) == []


@pytest.mark.parametrize(
    ("made", "better"),
    [
        (service({"nodePort": 30080}), "NodePort"),
        (service(externalIPs=["192.0.2.1"]), "ExternalIP"),
        ({**service(), "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}, "LoadBalancer"),
        (service(), None),
    ],
)
def test_a_name_that_only_pods_resolve(made: Any, better: str | None) -> None:
    """A cluster-internal host name is a finding; the patch advertises an address reachable from outside,
    if one exists.
    """
    (finding,) = host_name_findings(syncer("service", advertise="ClusterDNS"), [made], "cluster.local")
    assert "rating.shop.svc.cluster.local" in finding.problem
    assert (finding.patch.body["spec"]["advertise"] if finding.patch else None) == better
    assert list(host_name_findings(syncer("service"), [made], "cluster.local")) == []


@pytest.mark.parametrize(
    ("port", "container", "sign"),
    [
        ({"name": "http", "port": 8443}, {}, "it is named http"),
        ({"name": "http-alt", "port": 8443}, {}, "it is named http-alt"),
        ({"name": "web", "port": 8443, "appProtocol": "http"}, {}, "its appProtocol is http"),
        ({"name": "web", "port": 8443}, {"readinessProbe": {"httpGet": {"port": "web"}}}, "a probe asks it"),
        ({"name": "web", "port": 8443}, {}, ""),
        (
            {"name": "https", "port": 8443},
            {"readinessProbe": {"httpGet": {"port": "web", "scheme": "HTTPS"}}},
            "",
        ),
    ],
)
def test_https_on_a_port_that_speaks_http(port: Any, container: Any, sign: str) -> None:
    """A secure port that a name, appProtocol or probe shows to speak HTTP is a finding; without a sign it
    is none.
    """
    asked = syncer(securePort=8443)
    chosen = SelectedService(service(), [endpoints(port)], [deployment(**container)])
    found = list(secure_port_findings(asked, chosen))
    assert [sign in one.problem for one in found] == ([True] if sign else [])
    if found:
        assert found[0].patch is not None
        assert found[0].patch.body == {"spec": {"securePort": None}}
    assert list(secure_port_findings(syncer(), chosen)) == []


def condition(kind: str, status: str, reason: str = "", message: str = "why") -> dict[str, str]:
    """Return a condition of a syncer."""
    return {"type": kind, "status": status, "reason": reason or kind, "message": message}


SYNCED = condition("Synced", "True")
LEFT_OUT = condition("EndpointsLeftOut", "True", message="1 endpoint")


def test_endpoints_that_are_left_out_hide_no_other_trouble() -> None:
    """Endpoints left out are a finding with a name of its own, so that it can be ignored alone."""
    down = condition("Synced", "False", "EurekaUnreachable")
    for conditions, faults in (
        ([condition("Ready", "True"), SYNCED, LEFT_OUT], ["EndpointsLeftOut"]),
        ([condition("Ready", "False", "EndpointsLeftOut"), SYNCED, LEFT_OUT], ["EndpointsLeftOut"]),
        ([condition("Ready", "False"), down, LEFT_OUT], ["SyncerTrouble", "EndpointsLeftOut"]),
    ):
        assert [one.fault for one in condition_findings(item(conditions=conditions), syncer())] == faults


@pytest.mark.parametrize(
    ("names", "held", "said"),
    [
        (("rating", "rating-metrics"), 8080, None),
        (("rating", "rating-metrics"), 9090, "Eureka holds 1 instance of it that belong to other Services"),
        (("r", "r-metrics"), 8080, "their ports or pods differ: r, r-metrics"),
        (("rating",), 9090, None),
    ],
)
def test_several_services_with_the_label(names: tuple[str, ...], held: int, said: str | None) -> None:
    """Several Services with the selected label are a finding if none can be preferred, or if Eureka still
    holds another one's instances.
    """
    http, metrics = {"name": "http", "port": 8080}, {"name": "metrics", "port": 9090}
    services = [
        {**service(port), "metadata": {**service()["metadata"], "name": name}}
        for name, port in zip(names, (http, metrics), strict=False)
    ]
    slices = [endpoints(port, of=name) for name, port in zip(names, (http, metrics), strict=False)]
    ours = replace(instance(owner="cluster/lab/shop/rating"), port=Port(held))
    found = list(service_findings(syncer(), choose_services(syncer(), services, slices), [ours]))
    assert [(one.fault, said in one.problem) for one in found if said] == (
        [(Fault.AMBIGUOUS_SERVICE, True)] if said else []
    )
    assert bool(found) == bool(said)
    assert ["removes 1 instance" in one.remedy for one in found if "Eureka holds" in one.problem] == (
        [True] if (names[0], held) == ("rating", 9090) and found else []
    )


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        (None, "no operator has looked at it"),
        ([condition("Ready", "True"), SYNCED], None),
        ([condition("Ready", "True"), SYNCED, condition("Braked", "False", "Resolved")], None),
        ([condition("Ready", "True"), SYNCED, condition("Paused", "True")], None),
        ([condition("Ready", "False", "NoneUp"), SYNCED], "its operator says NoneUp: why"),
        (
            [condition("Ready", "True", "InstancesUp"), condition("Synced", "False", "SelfRegistered")],
            None,
        ),
        (
            [
                condition("Ready", "False", "Conflict"),
                condition("Synced", "False", "Conflict"),
                condition("Conflict", "True"),
            ],
            "its operator says Conflict: why",
        ),
        (
            [
                condition("Ready", "False", "NoMatchingService"),
                condition("Synced", "False", "NoMatchingService"),
            ],
            "its operator says NoMatchingService: why",
        ),
    ],
)
def test_what_the_operator_says(conditions: Any, said: str | None) -> None:
    """A syncer's failing conditions become one finding; those with a finding of their own, or wished by a
    person, are left out.
    """
    found = [one.problem for one in condition_findings(item(conditions=conditions), syncer())]
    assert found == ([said] if said else [])


@pytest.mark.parametrize(
    ("message", "remedy"),
    [("why", SYNCER_REMEDIES["NoPort"]), ("why; to fix it: set spec.port to 8080", "set spec.port to 8080")],
)
def test_what_fixes_it_is_not_said_twice(message: str, remedy: str) -> None:
    """A remedy at the end of the operator's message becomes the finding's remedy; else the doctor's own is
    used.
    """
    reported = [condition("Ready", "True"), SYNCED, condition("NoPort", "True", message=message)]
    (finding,) = condition_findings(item(conditions=reported), syncer())
    assert (finding.problem, finding.remedy) == ("its operator says NoPort: why", remedy)


def test_a_pod_that_registers_itself() -> None:
    """A self-registered instance at an endpoint of a syncer's application is a finding; other instances
    are not.
    """
    port = {"name": "http", "port": 8080}

    def found(*held: Instance, runs: tuple[Workload, ...] = (deployment(),), pod: str = "") -> list[Finding]:
        one = endpoints(port)
        pods = {}
        if pod:
            one["endpoints"][0]["targetRef"] = {"kind": "Pod", "name": pod}
            pods = {"10.0.0.1": registry_checks.Pod(pod, "10.0.0.1", deployment())}
        selected = SelectedService(service(port), [one], runs)
        others = registry_checks.self_registered_by_address(held)
        return list(registry_checks.self_registered_findings(syncer(), selected, others, pods))

    (finding,) = found(instance(), instance("10.9.9.9"))
    assert finding.subject == "Deployment shop/rating"
    assert finding.patch is not None
    assert finding.patch.body["spec"]["template"]["spec"]["containers"][0]["env"] == [
        {"name": "EUREKA_CLIENT_REGISTER_WITH_EUREKA", "value": "false"}
    ]
    assert found(instance(owner="cluster/lab/shop/rating"), instance(app="else")) == []
    (finding,) = found(instance(), runs=())
    assert (finding.subject, finding.patch) == ("Service shop/rating", None)
    elsewhere = replace(instance(), port=Port(9090))
    assert found(elsewhere) == []
    assert len(found(elsewhere, pod="rating-0")) == 1
    assert len(found(instance("127.0.0.1", host="rating-0"), pod="rating-0")) == 1
    assert found(instance("10.9.9.9", host="rating-0"), pod="rating-0") == []


def test_host_names_of_what_registered_itself() -> None:
    """A self-registered host name that is a pod's or a cluster's is a finding; a machine's short name is
    not.
    """
    pods = {"10.0.0.1": registry_checks.Pod("rating-1", "10.0.0.1", deployment())}

    def found(one: Instance, syncer_addresses: frozenset[str] = frozenset()) -> list[Finding]:
        return list(registry_checks.host_name_findings([one], pods, syncer_addresses, "corp.example"))

    (finding,) = found(instance(host="rating-1"))
    assert (finding.subject, finding.patch is not None) == ("Deployment shop/rating", True)
    assert found(instance(host="rating-1"), frozenset({"10.0.0.1"})) == []
    for host in ("10.0.0.1", "rating.example.com"):
        assert found(instance(host=host)) == []
    assert found(instance("192.0.2.1", host="vm-1")) == []
    for host in ("a.b.svc.corp.example", "a.b.svc.cluster.local", "a.b.svc"):
        (finding,) = found(instance("192.0.2.1", host=host))
        assert (finding.subject, finding.patch) == (f"RATING {host}:rating", None)
    assert found(instance(host="a.b.svc", owner="cluster/lab/shop/rating")) == []


def test_one_port_for_both() -> None:
    """The same number for plain and secure port is a finding, because Spring clients call the secure one."""
    (finding,) = registry_checks.secure_port_findings([instance(secure_port=Port(8080)), instance()])
    assert finding.fault is Fault.SECURE_PORT_BY_MISTAKE


def test_vip_addresses_that_differ_in_case() -> None:
    """VIP addresses that differ only in case are a finding; the patch gives a syncer the self-registered
    spelling.
    """
    ours = instance("10.0.0.2", vip_address="rating,stars", owner="cluster/lab/shop/rating")
    theirs = instance("192.0.2.1", vip_address="Rating")
    held = [ours, theirs]
    (finding,) = registry_checks.vip_case_findings(held, [syncer(vipAddress="rating,stars")], CLUSTER)
    assert finding.patch is not None
    assert finding.patch.body == {"spec": {"vipAddress": "Rating,stars"}}
    (finding,) = registry_checks.vip_case_findings(held, [], CLUSTER)
    assert (finding.subject, finding.patch) == ("VIP address Rating", None)
    assert (
        list(registry_checks.vip_case_findings([theirs, instance(vip_address="Rating")], [], CLUSTER)) == []
    )


def test_one_spelling_of_somebody_elses_outvotes_nobody() -> None:
    """One foreign instance with another spelling does not decide the spelling for many of ours."""
    ours = [instance(f"10.0.0.{n}", vip_address="rating", owner="cluster/eks/shop/rating") for n in range(5)]
    theirs = instance("192.0.2.1", vip_address="RaTiNg")
    (finding,) = registry_checks.vip_case_findings([*ours, theirs], [syncer(vipAddress="rating")], CLUSTER)
    assert (finding.subject, finding.patch) == ("VIP address rating", None)
    assert "spell it rating everywhere" in finding.remedy


def test_self_preservation_is_judged_by_who_should_have_renewed() -> None:
    """Self-preservation is judged by the renewals of instances old enough to have renewed."""
    old, new = int((NOW - 3600) * 1000), int((NOW - 30) * 1000)
    few, enough = FrontPage(17, 4), FrontPage(17, 18)

    def found(figures: FrontPage, stamp: int, told: int | None = None) -> list[Finding]:
        held = [
            instance(f"10.0.0.{number}", last_dirty_timestamp_ms=stamp, last_updated_timestamp_ms=told)
            for number in range(10)
        ]
        return list(registry_checks.self_preservation_findings("http://e", figures, held, NOW))

    assert [one.fault for one in found(few, old)] == [Fault.SELF_PRESERVATION_NEAR]
    assert found(few, new) == []
    gives_way = int((NOW - windows.OLDER_THAN_ANY_REGISTRATION_SECONDS) * 1000)
    assert found(few, gives_way, new) == []
    assert [one.fault for one in found(few, gives_way, old)] == [Fault.SELF_PRESERVATION_NEAR]
    assert [one.fault for one in found(few, old, new)] == [Fault.SELF_PRESERVATION_NEAR]
    assert found(FrontPage(17, 0), new) == []
    assert found(enough, old) == []


def test_servers_that_disagree() -> None:
    """Instances on which servers disagree are one finding, with the first of them and each server's
    status.
    """
    differing = [
        (("RATING", f"r-{number}"), {"http://a": Status.UP, "http://b": None}) for number in range(7)
    ]
    (finding,) = registry_checks.disagreement_findings("default", differing)
    assert "RATING r-0 (UP at http://a, not there at http://b)" in finding.problem
    assert "and 2 more" in finding.problem
    assert list(registry_checks.disagreement_findings("default", [])) == []


def test_a_namespace_is_not_blamed_for_others() -> None:
    """With a namespace given, only instances related to its syncers are judged."""
    strange = instance("192.0.2.1", "else", secure_port=Port(8080))
    related = instance("192.0.2.2", "Rating", secure_port=Port(8080))
    snapshot = Snapshot(
        CLUSTER,
        syncers=(item(conditions=[condition("Ready", "True"), SYNCED]),),
        eurekas={"default": EurekaSnapshot("default", (strange, related))},
    )
    assert len(check_snapshot(snapshot, WorkloadRequirements(), NOW)) == 2
    (finding,) = check_snapshot(snapshot, WorkloadRequirements(), NOW, ["shop"])
    assert finding.subject == "RATING 192.0.2.2:Rating"


def test_a_syncer_that_cannot_be_read_hides_no_other() -> None:
    """A syncer with an invalid spec, as an older CRD accepted, is a finding and does not end the check."""
    bad = item()
    bad["spec"]["mode"] = "both"
    (finding,) = check_snapshot(Snapshot(CLUSTER, syncers=(bad,)), WorkloadRequirements(), NOW)
    assert "spec.mode is 'both'" in finding.problem


def test_all_checks_see_what_a_syncer_selects() -> None:
    """Checks judge a syncer's own Service, slices and workload, and no other Service or namespace."""
    port = {"name": "http", "port": 8080}
    other = {**service(port), "metadata": {"namespace": "shop", "name": "other"}}
    elsewhere = {**service(port), "metadata": {"namespace": "else", "name": "rating"}}
    snapshot = Snapshot(
        CLUSTER,
        syncers=(item(conditions=[condition("Ready", "True"), SYNCED]),),
        services=(elsewhere, service(port), other),
        slices=(endpoints(port),),
        workloads=(deployment(),),
        eurekas={"default": EurekaSnapshot("default", (instance(),))},
    )
    found = check_snapshot(snapshot, WorkloadRequirements(), NOW)
    assert {one.fault for one in found} == {
        Fault.SELF_REGISTERED,
        Fault.NO_READINESS_PROBE,
        Fault.NO_PRE_STOP,
        Fault.MIN_READY_TOO_SHORT,
    }
    assert {one.subject for one in found} == {"Deployment shop/rating"}


def test_a_patch_is_for_what_a_person_writes() -> None:
    """An operator would take back what is patched into a derived syncer."""
    lease = {"renewalIntervalSeconds": 5, "durationSeconds": 8}
    plain = item(lease=lease)
    reference = {
        "apiVersion": "eurekube.io/v1alpha1",
        "kind": "EurekaSyncer",
        "name": "all",
        "uid": "u",
        "controller": True,
    }
    derived = {**plain, "metadata": {**plain["metadata"], "ownerReferences": [reference]}}
    for syncer_, has_patch in ((plain, True), (derived, False)):
        found = check_snapshot(Snapshot(CLUSTER, syncers=(syncer_,)), WorkloadRequirements(), NOW)
        (finding,) = (one for one in found if one.fault is Fault.LEASE_TOO_SHORT)
        assert (finding.patch is not None) is has_patch
        assert ("in EurekaSyncer shop/all, or by an annotation" in finding.remedy) is not has_patch


def test_a_namespaces_syncer_is_found_where_a_service_is_refused() -> None:
    """The derived syncers report the faults of the other Services."""
    conditions = [
        {"type": kind, "status": "False", "reason": "x", "message": "y"} for kind in ("Ready", "Synced")
    ]
    for refused in (0, 1):
        status = {"conditions": conditions, "applications": {"refused": refused}}
        namespaces = {**item(selector={"services": "All"}), "status": status}
        found = check_snapshot(Snapshot(CLUSTER, syncers=(namespaces,)), WorkloadRequirements(), NOW)
        assert [one.fault for one in found] == [Fault.SYNCER_TROUBLE] * refused

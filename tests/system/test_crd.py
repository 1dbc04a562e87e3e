"""Specs that the API server refuses: one sentence for each rule of the CRDs' schemas."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.mirror import Mirror
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.kube.access import MERGE_PATCH_TYPE, MIRRORS, STACK_REFRESHES, SYNCERS, ApiResource
from eurekube_provider.resources.files import crd_documents
from lab.workloads import Cluster, wait_for

pytestmark = pytest.mark.lab

Object = dict[str, Any]
POD: Object = {"mode": "pod", "selector": {"app": "rating"}}
SERVICE: Object = {"mode": "service", "selector": {"app": "rating"}}
NAMESPACE: Object = {"mode": "pod", "selector": {"services": "Annotated"}}

_NAMESPACE = "must be the name of a namespace, such as shop"
_APP = "must be a label value such as rating, without a slash or a colon"
_APPLICATION = "must be a name such as rating, without a slash or a colon"
_VIP = "must be a name such as rating, or several with commas, without slashes and spaces"
_PORT = "must be a port's number from 1 to 65535, or its name such as http"
_LABEL = "must be the key of a label, such as app.kubernetes.io/version"
_OWN_LABEL = "labels that would become metadata keys of Eurekube's own cannot be copied"
_KEY = "since Eureka sends keys as XML element names"
_OWN_KEY = "keys that start with eurekube. are Eurekube's own"
_PATH = "must be a path that starts with a slash, without spaces"

RULES: list[tuple[Object, str]] = [
    (
        {**POD, "selector": {}},
        "name the Services by app, by matchLabels, or by both; or by service or services",
    ),
    ({**POD, "selector": {"app": "a", "service": "a"}}, "service alone says which Service is meant"),
    ({**POD, "selector": {"service": "A.b"}}, "must be the name of a Service, such as rating"),
    *(
        (
            {**NAMESPACE, "selector": {"services": "All", key: value}},
            "services means those of the syncer's own",
        )
        for key, value in (("app", "a"), ("service", "a"), ("namespace", "a"), ("matchLabels", {"a": "b"}))
    ),
    ({**NAMESPACE, "application": "{namespace}"}, "application must contain {service}"),
    ({**NAMESPACE, "application": "{pod}"}, _APPLICATION),
    ({**POD, "application": "{service}"}, "{service} and {namespace} are for selector.services"),
    *(
        (
            {**NAMESPACE, "mode": mode, field: "a"},
            "vipAddress, secureVipAddress and address are for one Service",
        )
        for mode, field in (("pod", "vipAddress"), ("pod", "secureVipAddress"), ("service", "address"))
    ),
    ({**POD, "annotations": ["port"]}, "annotations is for selector.services"),
    ({**POD, "selector": {"app": "rating", "namespace": "Shop"}}, _NAMESPACE),
    ({**POD, "selector": {"app": "a/b"}}, _APP),
    (
        {**POD, "application": "x", "selector": {"matchLabels": {"a//b": "c"}}},
        "each key must be a label's, such as app.kubernetes.io/part-of",
    ),
    (
        {**POD, "application": "x", "selector": {"matchLabels": {"a": "b c"}}},
        "must be a label value such as web",
    ),
    (
        {**POD, "selector": {"matchLabels": {"team": "a"}}},
        "application is required where the selector has no app to take the name from",
    ),
    ({**POD, "application": "a/b"}, _APPLICATION),
    ({**POD, "vipAddress": "a b"}, _VIP),
    ({**POD, "secureVipAddress": "a/b"}, _VIP),
    ({**POD, "port": "Http!"}, _PORT),
    ({**POD, "securePort": "a b"}, _PORT),
    ({**POD, "port": 8443, "securePort": "8443"}, "port and securePort must differ"),
    ({**POD, "address": "198.51.100.7"}, "address is for mode service, in place of advertise"),
    ({**SERVICE, "address": "a", "advertise": "Auto"}, "address is for mode service, in place of advertise"),
    ({**SERVICE, "address": "http://a"}, "must be an IP address or a host name"),
    ({**SERVICE, "nodes": 2}, "nodes is for advertise NodePort"),
    ({**POD, "advertise": "Auto"}, "in mode pod, advertise may only be HostPort"),
    ({**SERVICE, "advertise": "HostPort"}, "in mode service, it may be all but HostPort"),
    (
        {**SERVICE, "metadataFromPodLabels": ["version"]},
        "metadataFromPodLabels is for mode pod; in mode service use metadataFromLabels",
    ),
    (
        {**SERVICE, "onTermination": "OutOfService"},
        "onTermination OutOfService is for mode pod; in mode service no pod is registered",
    ),
    (
        {**POD, "policy": "UpsertOnly", "notReady": "Remove"},
        "notReady Remove needs policy Sync, since UpsertOnly removes nothing",
    ),
    *(
        (
            {**POD, **more, "removeDeadSelfRegistered": True},
            "removeDeadSelfRegistered is for mode pod with policy Sync",
        )
        for more in ({"mode": "service"}, {"policy": "UpsertOnly"})
    ),
    ({**POD, "metadata": {"a_b": "c"}}, _KEY),
    ({**POD, "metadata": {"a/b": "c"}}, _KEY),
    ({**POD, "metadata": {"eurekube.owner": "me"}}, _OWN_KEY),
    *(
        ({**POD, "metadata": {"a": f"b{letter}"}}, "must have no control characters, nor U+FFFE and U+FFFF")
        for letter in "\u0007\ufffe\uffff"
    ),
    ({**POD, "metadata": {f"k{i}": "x" * 1024 for i in range(4)}}, "at most 4096 bytes together"),
    ({**POD, "metadataFromLabels": ["a b"]}, _LABEL),
    ({**POD, "metadataFromLabels": ["eurekube/owner"]}, _OWN_LABEL),
    ({**POD, "metadataFromPodLabels": ["/a"]}, _LABEL),
    ({**POD, "metadataFromPodLabels": ["eurekube.io/x"]}, _OWN_LABEL),
    *(
        ({**POD, field: {key: "a"}}, sentence)
        for field in ("metadataFromPorts", "metadataFromAnnotations")
        for key, sentence in (("a/b", _KEY), ("a_b", _KEY), ("eurekube.owner", _OWN_KEY))
    ),
    ({**POD, "metadataFromPorts": {"a": "Http!"}}, "must be the name of a port, such as management"),
    ({**POD, "metadataFromPorts": {"a": "8080/tcp"}}, "must be the name of a port, such as management"),
    ({**POD, "metadataFromAnnotations": {"a": "b c"}}, "must be the key of an annotation"),
    ({**POD, "healthCheckPort": 80}, "healthCheckPort needs healthCheckPath"),
    ({**POD, "healthCheckPath": "/", "healthCheckPort": "a b"}, _PORT),
    ({**POD, "homePagePath": "home"}, _PATH),
    ({**POD, "statusPagePath": "info"}, _PATH),
    ({**POD, "healthCheckPath": "/a b"}, _PATH),
    (
        {**POD, "lease": {"renewalIntervalSeconds": 90}},
        "durationSeconds must be longer than renewalIntervalSeconds",
    ),
    *(
        ({**POD, "readinessGate": {"callersSeconds": value}}, "must be Computed, or seconds from 0 to 86400")
        for value in ("soon", "computed")
    ),
    ({**POD, "eureka": "EU"}, "must be the name of a connection, such as eu-west"),
]
"""Wrong EurekaSyncer specs, each with the sentence of the refusal."""

BOUNDS: list[tuple[Object, str]] = [
    ({**POD, "mode": "node"}, '"pod", "service"'),
    ({"mode": "pod"}, "spec.selector: Required value"),
    ({**POD, "port": 0}, "greater than or equal to 1"),
    ({**POD, "securePort": 65536}, "less than or equal to 65535"),
    ({**SERVICE, "advertise": "Host"}, '"NodePort"'),
    ({**SERVICE, "advertise": "NodePort", "nodes": 11}, "less than or equal to 10"),
    ({**POD, "policy": "CreateOnly"}, '"UpsertOnly"'),
    ({**POD, "notReady": "Stay"}, '"Remove"'),
    ({**POD, "onTermination": "Wait"}, '"OutOfService"'),
    ({**POD, "lease": {"durationSeconds": 0}}, "greater than or equal to 1"),
    ({**POD, "metadata": {"a": ""}}, "at least 1 chars long"),
    ({**POD, "metadata": {f"a{number}": "b" for number in range(33)}}, "at most 32"),
    ({**POD, "metadataFromLabels": ["a", "a"]}, "Duplicate value"),
    ({**POD, "paused": "yes"}, "must be of type boolean"),
    ({**POD, "selector": {"services": "Some"}}, '"Annotated", "All"'),
    ({**NAMESPACE, "annotations": ["eureka"]}, '"healthCheckPath"'),
]
"""EurekaSyncer specs out of bounds, each with a part of the refusal."""

REFRESH: Object = {"selector": {"app": "rating"}, "action": "Refresh", "target": "prod"}

REFRESH_RULES: list[tuple[Object, str]] = [
    ({**REFRESH, "selector": {}}, "name the Services by app, by matchLabels, or by both"),
    ({**REFRESH, "selector": {"app": "rating", "namespace": "Shop"}}, _NAMESPACE),
    ({**REFRESH, "selector": {"app": "a/b"}}, _APP),
    (
        {**REFRESH, "selector": {"matchLabels": {"a//b": "c"}}},
        "each key must be a label's, such as app.kubernetes.io/part-of",
    ),
    ({**REFRESH, "selector": {"matchLabels": {"a": "b c"}}}, "must be a label value such as web"),
    ({**REFRESH, "target": "Prod"}, "must be the name of a target, such as shop-prod"),
    (
        {**REFRESH, "debounceSeconds": 10, "minIntervalSeconds": 9},
        "minIntervalSeconds must not be shorter than debounceSeconds, or it would mean nothing",
    ),
    ({**REFRESH, "action": "Destroy"}, 'supported values: "Refresh", "Up", "Preview"'),
    ({**REFRESH, "debounceSeconds": 0}, "greater than or equal to 1"),
    ({**REFRESH, "minIntervalSeconds": 86401}, "less than or equal to 86400"),
    ({"selector": {"app": "rating"}, "action": "Up"}, "spec.target: Required value"),
]
"""Wrong StackRefresh specs, each with the sentence of the refusal."""

MIRROR: Object = {"application": "review"}
ALL: Object = {"pattern": "SHOP-*", "allow": ["SHOP-REVIEW"]}

MIRROR_RULES: list[tuple[Object, str]] = [
    ({}, "name one application, or a pattern with an allow list"),
    ({**MIRROR, **ALL}, "name one application, or a pattern with an allow list"),
    ({"pattern": "A*"}, "allow is required with pattern, since anyone who registers in Eureka"),
    ({**MIRROR, "allow": ["b"]}, "allow is for pattern"),
    ({**ALL, "attachTo": "x"}, "attachTo needs application, since one Service shows one application"),
    ({**MIRROR, "attachTo": "x", "headless": True}, "headless is for a Service that the mirror makes"),
    ({**MIRROR, "attachTo": "x", "serviceName": "y"}, "serviceName is for a Service that the mirror makes"),
    ({**ALL, "serviceName": "y"}, "with pattern, serviceName must contain {application}"),
    ({**MIRROR, "port": 443}, "port and securePort must differ, by number and by name"),
    ({"application": "a/b"}, "must be a name such as review, without a slash or a colon"),
    ({**ALL, "pattern": "a b"}, "must be a name in which * and ? may stand, such as SHOP-*"),
    ({**ALL, "allow": ["a b"]}, "must be a name in which * and ? may stand, such as SHOP-REVIEW"),
    ({**MIRROR, "eureka": "EU"}, "must be the name of a connection, such as eu-west"),
    ({**MIRROR, "serviceName": "A"}, "must be lower-case letters, digits, dashes and {application}"),
    ({**MIRROR, "attachTo": "A"}, "must be the name of a Service, such as rating"),
    ({**MIRROR, "portName": "A"}, "must be a port's name such as http"),
    ({**MIRROR, "securePortName": "A"}, "must be a port's name such as https"),
    ({**MIRROR, "allowedCIDRs": ["10.0.0.1/8"]}, "must be a network such as 192.0.2.0/24, without bits set"),
    ({**MIRROR, "allowedCIDRs": ["ten"]}, "must be a network such as 192.0.2.0/24, without bits set"),
    ({**MIRROR, "zones": {"dc1": "a b"}}, "must be a zone of nodes, such as eu-central-1a"),
    ({**MIRROR, "holdSeconds": 29}, "greater than or equal to 30"),
    ({**ALL, "allow": ["?*"]}, "an entry that any name fits is no list"),
    ({**MIRROR, "attachTo": "x", "serviceLabels": {"a": "b"}}, "are for a Service that the mirror makes"),
    ({**MIRROR, "serviceLabels": {"a b": "c"}}, "each key must be a label's"),
    ({**MIRROR, "serviceLabels": {"a": "b c"}}, "must be a label value such as web"),
    ({**MIRROR, "serviceAnnotations": {"a b": "c"}}, "each key must be an annotation's"),
    *(
        ({**MIRROR, field: {key: "a"}}, "are the mirror's own")
        for field in ("serviceLabels", "serviceAnnotations")
        for key in ("eurekube.io/mirror", "app.kubernetes.io/managed-by")
    ),
    ({**MIRROR, "maxServices": 0}, "greater than or equal to 1"),
]
"""Wrong EurekaMirror specs, each with the sentence of the refusal."""

_LONG_NAME = "the name must have at most 63 characters, since it becomes a label's value"
_LONG_NAME_OF_A_SYNCER = "with selector.services the name must have at most 63 characters"
_ANOTHER_KIND = "selector.services cannot be added or taken away"

FULL: Object = {
    "mode": "pod",
    "selector": {"namespace": "shop", "app": "rating", "matchLabels": {"app.kubernetes.io/part-of": "web"}},
    "application": "ratings",
    "vipAddress": "ratings,rating",
    "secureVipAddress": "ratings",
    "port": "http",
    "securePort": 8443,
    "metadata": {"team": "stars\u2028\U0001f31f", "management.port": "9090", "long": "\u00e4" * 512},
    "metadataFromLabels": ["app.kubernetes.io/version"],
    "metadataFromPodLabels": ["pod-template-hash"],
    "homePagePath": "/",
    "statusPagePath": "/actuator/info",
    "healthCheckPath": "/actuator/health?full=1",
    "healthCheckPort": 8081,
    "metadataFromPorts": {"management.port": "management"},
    "metadataFromAnnotations": {"team": "example.com/team"},
    "lease": {"renewalIntervalSeconds": 10, "durationSeconds": 30},
    "policy": "UpsertOnly",
    "paused": True,
    "notReady": "Down",
    "onTermination": "OutOfService",
    "eureka": "eu-west",
}


def create(
    cluster: Cluster,
    spec: Object,
    resource: ApiResource = SYNCERS,
    kind: str = "EurekaSyncer",
    name: str = "rating",
) -> Object:
    """Create a custom resource by a dry run; return the object as the API server would store it."""
    body = {
        "apiVersion": "eurekube.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    return cluster.access.request("POST", resource.path("default"), {"dryRun": "All"}, body)


def messages(schema: Any) -> Iterator[str]:
    """Yield the message of every rule in a schema."""
    if isinstance(schema, dict):
        for rule in schema.get("x-kubernetes-validations", ()):
            yield rule["message"]
        for value in schema.values():
            yield from messages(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from messages(value)


@pytest.mark.parametrize(("spec", "sentence"), [*RULES, *BOUNDS])
def test_bad_input_is_refused_with_a_sentence(cluster: Cluster, spec: Object, sentence: str) -> None:
    """The API server refuses a wrong EurekaSyncer, and says what is wrong."""
    with pytest.raises(KubernetesError) as refused:
        create(cluster, spec)
    assert refused.value.status_code == 422
    assert sentence in str(refused.value)


@pytest.mark.parametrize(("spec", "sentence"), REFRESH_RULES)
def test_a_bad_stack_refresh_is_refused_with_a_sentence(
    cluster: Cluster, spec: Object, sentence: str
) -> None:
    """The API server refuses a wrong StackRefresh, and says what is wrong."""
    with pytest.raises(KubernetesError) as refused:
        create(cluster, spec, STACK_REFRESHES, "StackRefresh")
    assert refused.value.status_code == 422
    assert sentence in str(refused.value)


@pytest.mark.parametrize(("spec", "sentence"), MIRROR_RULES)
def test_a_bad_mirror_is_refused_with_a_sentence(cluster: Cluster, spec: Object, sentence: str) -> None:
    """The API server refuses a wrong EurekaMirror, and says what is wrong."""
    with pytest.raises(KubernetesError) as refused:
        create(cluster, spec, MIRRORS, "EurekaMirror")
    assert refused.value.status_code == 422
    assert sentence in str(refused.value)


def test_a_mirror_may_not_be_called_by_more_than_a_label_holds(cluster: Cluster) -> None:
    """A mirror's name becomes a label value, which has at most 63 characters."""
    assert create(cluster, MIRROR, MIRRORS, "EurekaMirror", "a" * 63)["metadata"]["name"] == "a" * 63
    with pytest.raises(KubernetesError, match=_LONG_NAME):
        create(cluster, MIRROR, MIRRORS, "EurekaMirror", "a" * 64)


def test_a_namespaces_syncer_stays_one(cluster: Cluster) -> None:
    """Its derived syncers or its instances would be left behind, and its name is part of their names."""
    assert create(cluster, NAMESPACE, name="a" * 63)["metadata"]["name"] == "a" * 63
    with pytest.raises(KubernetesError, match=_LONG_NAME_OF_A_SYNCER):
        create(cluster, NAMESPACE, name="a" * 64)
    assert create(cluster, POD, name="a" * 64)
    kind = {"apiVersion": "eurekube.io/v1alpha1", "kind": "EurekaSyncer"}
    for name, before, after in (("one", POD, NAMESPACE), ("many", NAMESPACE, POD)):
        metadata = {"namespace": "default", "name": f"stays-{name}"}
        cluster.apply(SYNCERS, {**kind, "metadata": metadata, "spec": before})
        body = {"spec": {"selector": {"app": None, "services": None, **after["selector"]}}}
        path = SYNCERS.path("default", metadata["name"])
        with pytest.raises(KubernetesError, match=_ANOTHER_KIND):
            cluster.access.request("PATCH", path, body=body, content_type=MERGE_PATCH_TYPE)
        cluster.delete(SYNCERS, metadata["name"], "default")


def test_a_mirror_of_one_field(cluster: Cluster) -> None:
    """A mirror needs one field; the operator's defaults are those of the schema, and the API server drops
    no field.
    """
    stored = create(cluster, MIRROR, MIRRORS, "EurekaMirror")
    metadata = {"namespace": "default", "name": "rating"}
    assert Mirror.from_object(stored) == Mirror.from_object({"metadata": metadata, "spec": MIRROR})
    full = {
        **MIRROR,
        "eureka": "eu-west",
        "serviceName": "vm-{application}",
        "serviceLabels": {"app": "review", "spring.example.com/on": ""},
        "serviceAnnotations": {"example.com/team": "stars and moons"},
        "headless": True,
        "port": 8080,
        "portName": "web",
        "securePort": 8443,
        "securePortName": "tls",
        "allowedCIDRs": ["192.0.2.0/24", "2001:db8::/32"],
        "zones": {"dc1": "eu-central-1a"},
        "includeOtherClusters": True,
        "holdSeconds": 60,
        "maxServices": 40,
        "paused": True,
    }
    assert create(cluster, full, MIRRORS, "EurekaMirror")["spec"] == full


def test_a_stack_refresh_of_three_fields(cluster: Cluster) -> None:
    """A StackRefresh needs three fields, and the API server drops no field."""
    stored = create(cluster, REFRESH, STACK_REFRESHES, "StackRefresh")
    assert stored["spec"] == {**REFRESH, "paused": False}
    full = {
        **REFRESH,
        "selector": {"namespace": "shop", "app": "rating", "matchLabels": {"a": ""}},
        "debounceSeconds": 10,
        "minIntervalSeconds": 10,
        "paused": True,
    }
    assert create(cluster, full, STACK_REFRESHES, "StackRefresh")["spec"] == full


def test_every_rule_is_tried() -> None:
    """This module tries every message of the CRDs' schemas."""
    tried = {
        "EurekaMirror": [*MIRROR_RULES, ({}, _LONG_NAME)],
        "EurekaSyncer": [*RULES, ({}, _LONG_NAME_OF_A_SYNCER), ({}, _ANOTHER_KIND)],
        "StackRefresh": REFRESH_RULES,
    }
    for crd in crd_documents():
        rules = tried[crd["spec"]["names"]["kind"]]
        written = set(messages(crd))
        assert {message for message in written if not any(said in message for _, said in rules)} == set()


def test_mode_and_selector_are_enough(cluster: Cluster) -> None:
    """Every other field of a syncer has a default, and the operator's defaults are those of the schema."""
    stored = create(cluster, POD)
    metadata = {"namespace": "default", "name": "rating"}
    assert Syncer.from_object(stored) == Syncer.from_object({"metadata": metadata, "spec": POD})


@pytest.mark.parametrize(
    "spec",
    [
        FULL,
        {
            "mode": "service",
            "selector": {"matchLabels": {"a": ""}},
            "application": "a",
            "advertise": "NodePort",
            "nodes": 10,
        },
        {**POD, "port": 8080, "securePort": "https"},
        {**POD, "selector": {"service": "rating", "namespace": "other"}},
        NAMESPACE,
        {**NAMESPACE, "application": "{namespace}-{service}.x", "annotations": ["port", "metadata"]},
        {**POD, "port": "8080"},
    ],
)
def test_good_input_is_taken_as_it_is(cluster: Cluster, spec: Object) -> None:
    """The API server accepts the specs of the documentation, and drops no field."""
    assert spec.items() <= create(cluster, spec)["spec"].items()


def test_an_object_from_before_a_rule_goes_on(cluster: Cluster) -> None:
    """The operator still writes finalizer and status of a stored object that today's rules would refuse."""
    (crd,) = (one for one in crd_documents() if one["spec"]["names"]["kind"] == "EurekaSyncer")
    today = copy.deepcopy(crd)
    # Under names of its own: other tests of this cluster ask kubectl for eurekasyncers.
    today["spec"]["group"] = "before.eurekube.io"
    today["spec"]["names"] = {"kind": "FormerSyncer", "plural": "formersyncers", "singular": "formersyncer"}
    today["metadata"]["name"] = "formersyncers.before.eurekube.io"
    before = copy.deepcopy(today)
    metadata = before["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][
        "metadata"
    ]
    del metadata["x-kubernetes-validations"]
    del metadata["additionalProperties"]["x-kubernetes-validations"]
    cluster.install_crd(before)
    resource = ApiResource("before.eurekube.io", "v1alpha1", "formersyncers")
    spec = {**POD, "metadata": {"a": "b\ufffe", **{f"k{i}": "x" * 1024 for i in range(5)}}}
    old = {
        "apiVersion": "before.eurekube.io/v1alpha1",
        "kind": "FormerSyncer",
        "metadata": {"name": "old", "namespace": "default"},
        "spec": spec,
    }
    cluster.apply(resource, old)
    cluster.install_crd(today)
    path = resource.path("default", "old")

    def new_ones_are_refused() -> bool:
        try:
            body = {**old, "metadata": {"name": "new"}}
            cluster.access.request("POST", resource.path("default"), {"dryRun": "All"}, body)
        except KubernetesError as error:
            return "4096 bytes" in str(error) and "U+FFFE" in str(error)
        return False

    wait_for(new_ones_are_refused, "the rules of today")
    patches: list[tuple[str, Object]] = [
        (path, {"metadata": {"finalizers": ["eurekube.io/deregister"]}}),
        (resource.path("default", "old", "status"), {"status": {"desired": 1}}),
        (path, {"spec": {"paused": True}}),
        (path, {"metadata": {"finalizers": []}}),
    ]
    for where, body in patches:
        cluster.access.request("PATCH", where, body=body, content_type=MERGE_PATCH_TYPE)
    assert cluster.access.request("GET", path)["spec"]["metadata"] == spec["metadata"]

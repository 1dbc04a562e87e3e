"""The Kubernetes API in memory and a real kube-apiserver give the same answers to the same requests.

The requests are those of the program, the operator and the demo. docs/reference/dev-kubernetes.md lists the
known differences, which no test here may touch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.dev.kubernetes.kubernetes_api import KubernetesApi
from eurekube_provider.kube.access import (
    APPLY_PATCH_TYPE,
    LEASES,
    MERGE_PATCH_TYPE,
    NAMESPACES,
    PODS,
    SERVICES,
    SYNCERS,
    ApiResource,
    KubeAccess,
)

Object = dict[str, Any]

ROOT = Path(__file__).parents[2]
CRDS = ApiResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
CONFIG_MAPS = ApiResource("", "v1", "configmaps")
SLICES = ApiResource("discovery.k8s.io", "v1", "endpointslices")
EVENTS = ApiResource("events.k8s.io", "v1", "events")
ACCOUNTS = ApiResource("", "v1", "serviceaccounts")
VALVES = ApiResource("contract.eurekube.io", "v1", "valves")

VALVE_CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "valves.contract.eurekube.io"},
    "spec": {
        "group": "contract.eurekube.io",
        "scope": "Namespaced",
        "names": {"kind": "Valve", "listKind": "ValveList", "plural": "valves", "singular": "valve"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["size"],
                                "properties": {
                                    "size": {"type": "integer", "minimum": 1, "maximum": 9},
                                    "ratio": {"type": "number"},
                                    "port": {
                                        "x-kubernetes-int-or-string": True,
                                        "anyOf": [{"type": "integer"}, {"type": "string"}],
                                    },
                                    "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                                    "code": {
                                        "type": "string",
                                        "pattern": "^[a-z]+$",
                                        "minLength": 2,
                                        "maxLength": 4,
                                    },
                                    "is_open": {"type": "boolean"},
                                    "note": {"type": "string", "nullable": True},
                                    "tags": {
                                        "type": "array",
                                        "maxItems": 2,
                                        "x-kubernetes-list-type": "set",
                                        "items": {"type": "string"},
                                    },
                                    "labels": {
                                        "type": "object",
                                        "maxProperties": 2,
                                        "additionalProperties": {"type": "string"},
                                    },
                                    "nested": {
                                        "type": "object",
                                        "default": {},
                                        "properties": {"depth": {"type": "integer", "default": 7}},
                                    },
                                    "free": {
                                        "type": "object",
                                        "x-kubernetes-preserve-unknown-fields": True,
                                    },
                                    "ends": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["name"],
                                        "items": {
                                            "type": "object",
                                            "required": ["name"],
                                            "properties": {
                                                "name": {"type": "string"},
                                                "width": {"type": "integer", "default": 3},
                                            },
                                        },
                                    },
                                },
                            },
                            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
                        },
                    }
                },
            }
        ],
    },
}


class Api:
    """One API server as a client with all rights uses it."""

    def __init__(self, kubeconfig: Path) -> None:
        self.access = KubeAccess.load(kubeconfig)
        self._kubeconfig: Object = yaml.safe_load(kubeconfig.read_text())

    def with_token(self, token: str) -> KubeAccess:
        """Return the access of another user, who has this token."""
        users = [{"name": one["name"], "user": {"token": token}} for one in self._kubeconfig["users"]]
        return KubeAccess.load({**self._kubeconfig, "users": users})

    def get(self, resource: ApiResource, namespace: str | None, name: str) -> Object:
        """Read one object."""
        return self.access.get(resource.path(namespace, name))

    def list(self, resource: ApiResource, namespace: str | None, **query: str) -> Object:
        """Read a list."""
        return self.access.get(resource.path(namespace), query)

    def create(self, resource: ApiResource, namespace: str | None, item: Object, **query: str) -> Object:
        """Send ``POST``."""
        return self.access.request("POST", resource.path(namespace), query, item)

    def update(self, resource: ApiResource, namespace: str, item: Object, subresource: str = "") -> Object:
        """Send ``PUT``."""
        path = resource.path(namespace, item["metadata"]["name"], subresource)
        return self.access.request("PUT", path, body=item)

    def merge(
        self,
        resource: ApiResource,
        namespace: str,
        name: str,
        patch: Object,
        subresource: str = "",
        **query: str,
    ) -> Object:
        """Send a merge patch."""
        path = resource.path(namespace, name, subresource)
        return self.access.request("PATCH", path, query, patch, MERGE_PATCH_TYPE)

    def apply(
        self, resource: ApiResource, namespace: str | None, item: Object, manager: str = "one", **query: str
    ) -> Object:
        """Send a server-side apply patch."""
        path = resource.path(namespace, item["metadata"]["name"])
        return self.access.request("PATCH", path, {"fieldManager": manager, **query}, item, APPLY_PATCH_TYPE)

    def delete(
        self, resource: ApiResource, namespace: str | None, name: str, body: Object | None = None
    ) -> Object:
        """Send ``DELETE``."""
        return self.access.request("DELETE", resource.path(namespace, name), body=body)

    def is_there(self, resource: ApiResource, namespace: str | None, name: str) -> bool:
        """Return True where there is such an object."""
        try:
            self.get(resource, namespace, name)
        except KubernetesError as error:
            if (error.status_code, error.reason) != (404, "NotFound"):
                raise
            return False
        return True


def refusal(raised: pytest.ExceptionInfo[KubernetesError]) -> tuple[int | None, str]:
    """Return the status code and the reason of an answer."""
    return raised.value.status_code, raised.value.reason


def config_map(name: str, **data: str) -> Object:
    """Return a ConfigMap with these data."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def valve(name: str, /, **spec: Any) -> Object:
    """Return an object of the custom kind Valve."""
    return {
        "apiVersion": "contract.eurekube.io/v1",
        "kind": "Valve",
        "metadata": {"name": name},
        "spec": {"size": 3, **spec},
    }


def installed(api: Api, document: Object) -> None:
    """Apply a CustomResourceDefinition, and wait until its kind is served."""
    api.apply(CRDS, None, document, force="true")
    spec = document["spec"]
    resource = ApiResource(spec["group"], spec["versions"][0]["name"], spec["names"]["plural"])
    name = document["metadata"]["name"]

    def is_served() -> bool:
        conditions = (api.get(CRDS, None, name).get("status") or {}).get("conditions") or ()
        is_established = any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
        return is_established and api.access.serves_kind(resource)

    for _ in range(200):
        if is_served():
            return
        threading.Event().wait(0.05)
    raise AssertionError(f"{name} is not served")


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start an API in memory; return its kubeconfig."""
    with KubernetesApi() as running:
        yield running.write_kubeconfig(tmp_path_factory.mktemp("embedded") / "kubeconfig")


@pytest.fixture(scope="module")
def servers() -> dict[str, Api]:
    """Return the API servers that were used so far, which have the custom kind."""
    return {}


REAL = [pytest.mark.lab, pytest.mark.real_server("it is compared with a real API server here")]


@pytest.fixture(params=["embedded", pytest.param("real", marks=REAL)])
def api(request: pytest.FixtureRequest, servers: dict[str, Api]) -> Api:
    """Return the API in memory and the real API server in turn."""
    if request.param not in servers:
        if request.param == "embedded":
            kubeconfig: Path = request.getfixturevalue("embedded")
        else:
            kubeconfig = request.getfixturevalue("lab").kubeconfig
        found = servers[request.param] = Api(kubeconfig)
        installed(found, VALVE_CRD)
        for path in sorted((ROOT / "crds").glob("*.yaml")):
            installed(found, yaml.safe_load(path.read_text()))
    return servers[request.param]


@pytest.fixture
def namespace(api: Api, unique_name: str) -> str:
    """Create a namespace for one test."""
    api.create(NAMESPACES, None, {"metadata": {"name": unique_name}})
    return unique_name


# --- what there is


def test_a_group_tells_its_kinds(api: Api) -> None:
    """The discovery of a group returns names, kinds and scopes."""
    lines = {one["name"]: one for one in api.access.get("/apis/eurekube.io/v1alpha1")["resources"]}
    assert {"eurekasyncers", "eurekamirrors", "stackrefreshes"} <= lines.keys()
    assert (lines["eurekasyncers"]["kind"], lines["eurekasyncers"]["namespaced"]) == ("EurekaSyncer", True)
    core = {one["name"]: one for one in api.access.get("/api/v1")["resources"]}
    assert (core["namespaces"]["kind"], core["namespaces"]["namespaced"]) == ("Namespace", False)
    leases = api.access.get("/apis/coordination.k8s.io/v1")["resources"]
    assert {"leases"} <= {one["name"] for one in leases}


@pytest.mark.parametrize(
    "path", ["/apis/nobody.example.com/v1", "/api/v1/gadgets", "/apis/apps/v1/gadgets", "/nothing"]
)
def test_a_kind_that_is_not_there_is_not_found(api: Api, path: str) -> None:
    """A request for an unknown kind is answered with 404."""
    with pytest.raises(KubernetesError) as raised:
        api.access.get(path)
    assert raised.value.status_code == 404


def test_the_namespaces_of_every_cluster_are_there(api: Api) -> None:
    """The namespaces default, kube-system, kube-public and kube-node-lease exist; kube-system's UID
    identifies the cluster.
    """
    names = {one["metadata"]["name"] for one in api.list(NAMESPACES, None)["items"]}
    assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= names
    assert len(api.get(NAMESPACES, None, "kube-system")["metadata"]["uid"]) == 36


def test_who_has_no_token_is_not_let_in(api: Api) -> None:
    """A request with an unknown token is answered with 401."""
    stranger = api.with_token("made-up")
    with pytest.raises(KubernetesError) as raised:
        stranger.get(NAMESPACES.path())
    assert refusal(raised) == (401, "Unauthorized")


# --- created, read, listed


def test_what_is_created_is_read_again(api: Api, namespace: str) -> None:
    """A created object gets a UID, a version and a creation time."""
    made = api.create(CONFIG_MAPS, namespace, config_map("one", color="red"))
    assert made["data"] == {"color": "red"}
    assert (made["apiVersion"], made["kind"]) == ("v1", "ConfigMap")
    metadata = made["metadata"]
    assert metadata["namespace"] == namespace
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0
    assert api.get(CONFIG_MAPS, namespace, "one") == made


def test_a_name_is_taken_once(api: Api, namespace: str) -> None:
    """Creating a second object of one name is answered with 409."""
    api.create(CONFIG_MAPS, namespace, config_map("one"))
    with pytest.raises(KubernetesError) as raised:
        api.create(CONFIG_MAPS, namespace, config_map("one"))
    assert refusal(raised) == (409, "AlreadyExists")


def test_nothing_is_created_in_a_namespace_that_is_not_there(api: Api) -> None:
    """The answer is 404, and its message names the missing namespace."""
    with pytest.raises(KubernetesError, match="namespaces") as raised:
        api.create(CONFIG_MAPS, "nowhere-at-all", config_map("one"))
    assert refusal(raised) == (404, "NotFound")


@pytest.mark.parametrize("name", ["Upper", "a_b", "-a", "a" * 254])
def test_a_name_must_be_one(api: Api, namespace: str, name: str) -> None:
    """A name has lower-case letters, digits, dashes and dots, at most 253; others are answered with 422."""
    with pytest.raises(KubernetesError) as raised:
        api.create(CONFIG_MAPS, namespace, config_map(name))
    assert refusal(raised) == (422, "Invalid")


def test_an_object_that_is_not_there_is_not_found(api: Api, namespace: str) -> None:
    """Reading, changing or deleting a missing object is answered with 404."""
    asks: list[Callable[[], Object]] = [
        lambda: api.get(CONFIG_MAPS, namespace, "none"),
        lambda: api.merge(CONFIG_MAPS, namespace, "none", {"data": {"a": "b"}}),
        lambda: api.delete(CONFIG_MAPS, namespace, "none"),
        lambda: api.merge(VALVES, namespace, "none", {"status": {"phase": "x"}}, "status"),
    ]
    for ask in asks:
        with pytest.raises(KubernetesError, match="none") as raised:
            ask()
        assert refusal(raised) == (404, "NotFound")


def test_a_list_has_a_version_and_the_objects_of_its_namespace(api: Api, namespace: str) -> None:
    """Only the items of a custom kind's list have their own kind and apiVersion."""
    api.create(CONFIG_MAPS, namespace, config_map("settings", a="b"))
    api.create(VALVES, namespace, valve("one"))
    api.create(VALVES, namespace, valve("two"))
    listed = api.list(VALVES, namespace)
    assert (listed["kind"], listed["apiVersion"]) == ("ValveList", "contract.eurekube.io/v1")
    assert [one["metadata"]["name"] for one in listed["items"]] == ["one", "two"]
    assert {one["kind"] for one in listed["items"]} == {"Valve"}
    assert int(listed["metadata"]["resourceVersion"]) >= int(
        listed["items"][1]["metadata"]["resourceVersion"]
    )
    (settings,) = (
        one for one in api.list(CONFIG_MAPS, namespace)["items"] if one["metadata"]["name"] == "settings"
    )
    assert "kind" not in settings
    everywhere = api.list(VALVES, None)["items"]
    assert {one["metadata"]["namespace"] for one in everywhere} >= {namespace}


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("tier=web", ["a", "b"]),
        ("tier==web,zone=x", ["a"]),
        ("zone", ["a", "c"]),
        ("zone,tier=db", ["c"]),
        ("zone!=x", ["b", "c", "d"]),
    ],
)
def test_labels_select(api: Api, namespace: str, selector: str, names: list[str]) -> None:
    """A label selector selects by value, by another value or none, or by the key alone."""
    labels = {"a": {"tier": "web", "zone": "x"}, "b": {"tier": "web"}, "c": {"tier": "db", "zone": "y"}}
    for name in "abcd":
        item = {**valve(name), "metadata": {"name": name, "labels": labels.get(name, {})}}
        api.create(VALVES, namespace, item)
    listed = api.list(VALVES, namespace, labelSelector=selector)
    assert [one["metadata"]["name"] for one in listed["items"]] == names


def test_a_name_selects_one_object(api: Api, namespace: str) -> None:
    """The field selector metadata.name, with which a replica watches its Lease, selects one object."""
    for name in "ab":
        api.create(LEASES, namespace, {"metadata": {"name": name}})
    listed = api.list(LEASES, namespace, fieldSelector="metadata.name=b")
    assert [one["metadata"]["name"] for one in listed["items"]] == ["b"]


# --- changed


def test_each_change_has_a_version_of_its_own(api: Api, namespace: str) -> None:
    """Versions only grow, and a patch that changes nothing makes no new version."""
    made = api.create(CONFIG_MAPS, namespace, config_map("one", a="1"))
    changed = api.merge(CONFIG_MAPS, namespace, "one", {"data": {"b": "2"}})
    same = api.merge(CONFIG_MAPS, namespace, "one", {"data": {"b": "2"}})
    versions = [int(one["metadata"]["resourceVersion"]) for one in (made, changed, same)]
    assert versions[0] < versions[1] == versions[2]
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]


def test_a_merge_patch_merges_and_null_removes(api: Api, namespace: str) -> None:
    """A merge patch merges objects, replaces lists, and removes a field by null."""
    api.create(VALVES, namespace, valve("one", code="abc", tags=["a"], labels={"x": "1", "y": "2"}))
    patch = {"spec": {"code": None, "tags": ["b", "c"], "labels": {"x": None, "z": "3"}}}
    changed = api.merge(VALVES, namespace, "one", patch)
    assert "code" not in changed["spec"]
    assert changed["spec"]["tags"] == ["b", "c"]
    assert changed["spec"]["labels"] == {"y": "2", "z": "3"}
    assert changed["spec"]["size"] == 3


def test_who_has_an_old_version_changes_nothing(api: Api, namespace: str) -> None:
    """An update, patch or deletion that names an old version is refused."""
    old = api.create(LEASES, namespace, {"metadata": {"name": "one"}, "spec": {"holderIdentity": "a"}})
    new = api.update(LEASES, namespace, {**old, "spec": {"holderIdentity": "b"}})
    version = {"resourceVersion": old["metadata"]["resourceVersion"]}
    asks: list[Callable[[], Object]] = [
        lambda: api.update(LEASES, namespace, {**old, "spec": {"holderIdentity": "c"}}),
        lambda: api.merge(LEASES, namespace, "one", {"metadata": version, "spec": {"leaseTransitions": 1}}),
        lambda: api.delete(LEASES, namespace, "one", {"preconditions": version}),
        lambda: api.delete(LEASES, namespace, "one", {"preconditions": {"uid": "another"}}),
    ]
    for ask in asks:
        with pytest.raises(KubernetesError) as raised:
            ask()
        assert refusal(raised) == (409, "Conflict")
    assert api.get(LEASES, namespace, "one") == new


def test_an_update_keeps_what_is_the_servers(api: Api, namespace: str) -> None:
    """An update cannot change name, UID, creation time and generation."""
    made = api.create(VALVES, namespace, valve("one"))
    sent = {**made, "metadata": {**made["metadata"], "generation": 40, "labels": {"a": "b"}}}
    changed = api.update(VALVES, namespace, sent)
    for key in ("uid", "creationTimestamp", "generation"):
        assert changed["metadata"][key] == made["metadata"][key]
    assert changed["metadata"]["labels"] == {"a": "b"}


def test_a_lease_goes_from_hand_to_hand(api: Api, namespace: str) -> None:
    """The leader election can take, renew and release a Lease."""
    spec = {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2027-01-15T08:00:00.000000Z",
        "renewTime": "2027-01-15T08:00:00.000000Z",
        "leaseTransitions": 0,
    }
    held = api.create(LEASES, namespace, {"metadata": {"name": "leader"}, "spec": spec})
    assert held["spec"] == spec
    taken = api.update(
        LEASES, namespace, {**held, "spec": {**spec, "holderIdentity": "b", "leaseTransitions": 1}}
    )
    assert taken["spec"]["holderIdentity"] == "b"
    assert "generation" not in taken["metadata"]


def test_the_status_is_written_by_its_subresource_alone(api: Api, namespace: str) -> None:
    """The status subresource changes only the status, and leaves the generation."""
    made = api.create(VALVES, namespace, {**valve("one"), "status": {"phase": "reported at once"}})
    assert "status" not in made
    reported = api.merge(
        VALVES,
        namespace,
        "one",
        {"status": {"phase": "open", "unknown": 1}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}},
        "status",
    )
    assert (reported["status"], reported["spec"]["size"]) == ({"phase": "open"}, 3)
    assert reported["metadata"]["generation"] == made["metadata"]["generation"] == 1
    changed = api.merge(VALVES, namespace, "one", {"spec": {"size": 4}, "status": {"phase": "closed"}})
    assert (changed["status"], changed["spec"]["size"]) == ({"phase": "open"}, 4)
    assert changed["metadata"]["generation"] == 2
    updated = api.update(VALVES, namespace, {**changed, "status": {"phase": "half"}}, "status")
    assert (updated["status"], updated["metadata"]["generation"]) == ({"phase": "half"}, 2)
    with pytest.raises(KubernetesError) as raised:
        api.merge(CONFIG_MAPS, namespace, "none", {"status": {}}, "status")
    assert raised.value.status_code == 404


def test_the_status_of_a_pod_is_patched(api: Api, namespace: str) -> None:
    """A kubelet can patch a pod's readiness into its status."""
    containers = [{"name": "main", "image": "example.invalid/main"}]
    account = {"serviceAccountName": "nobody", "automountServiceAccountToken": False}
    api.create(ACCOUNTS, namespace, {"metadata": {"name": "nobody"}})
    made = api.create(
        PODS, namespace, {"metadata": {"name": "one"}, "spec": {**account, "containers": containers}}
    )
    assert not made["status"].get("conditions")
    conditions = [{"type": "Ready", "status": "True"}]
    reported = api.merge(
        PODS, namespace, "one", {"status": {"podIP": "10.0.0.9", "conditions": conditions}}, "status"
    )
    assert reported["status"]["podIP"] == "10.0.0.9"
    assert reported["status"]["conditions"][0]["status"] == "True"


def test_another_form_of_patch_is_no_media_type_for_a_custom_object(api: Api, namespace: str) -> None:
    """A strategic merge patch of a custom object is answered with 415."""
    api.create(VALVES, namespace, valve("one"))
    with pytest.raises(KubernetesError) as raised:
        api.access.request(
            "PATCH",
            VALVES.path(namespace, "one"),
            body={"spec": {"size": 4}},
            content_type="application/strategic-merge-patch+json",
        )
    assert refusal(raised) == (415, "UnsupportedMediaType")


def test_a_dry_run_answers_and_changes_nothing(api: Api, namespace: str) -> None:
    """A dry run of a creation, patch, apply or deletion answers as usual, and changes nothing."""
    dry = {"dryRun": "All"}
    assert api.create(VALVES, namespace, valve("one"), **dry)["spec"]["color"] == "red"
    assert api.apply(VALVES, namespace, valve("one"), **dry)["metadata"]["uid"]
    assert not api.is_there(VALVES, namespace, "one")
    made = api.create(VALVES, namespace, valve("one"))
    would_be = api.merge(VALVES, namespace, "one", {"spec": {"size": 5}}, **dry)
    assert (would_be["spec"]["size"], would_be["metadata"]["generation"]) == (5, 2)
    assert would_be["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert api.apply(VALVES, namespace, valve("one", size=6), force="true", **dry)["spec"]["size"] == 6
    api.access.request("DELETE", VALVES.path(namespace, "one"), dry)
    assert api.get(VALVES, namespace, "one") == made
    with pytest.raises(KubernetesError) as raised:
        api.create(VALVES, namespace, valve("two", size=99), **dry)
    assert refusal(raised) == (422, "Invalid")


# --- applied


def test_an_applied_object_is_made_or_changed(api: Api, namespace: str) -> None:
    """Server-side apply creates or changes an object; applying the same configuration again changes
    nothing.
    """
    made = api.apply(VALVES, namespace, valve("one", code="abc"))
    assert (made["spec"]["code"], made["spec"]["color"]) == ("abc", "red")
    again = api.apply(VALVES, namespace, valve("one", code="abc"))
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    changed = api.apply(VALVES, namespace, valve("one", code="xyz"))
    assert changed["spec"]["code"] == "xyz"
    assert changed["metadata"]["generation"] == 2
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]


def test_what_is_applied_no_more_goes(api: Api, namespace: str) -> None:
    """Fields and labels that only this manager applied go when it leaves them out; others stay."""
    labelled = valve("one", code="abc", port=80)
    labelled["metadata"]["labels"] = {"mine": "1", "both": "1"}
    api.apply(VALVES, namespace, labelled)
    api.merge(
        VALVES,
        namespace,
        "one",
        {"spec": {"note": "by hand"}, "metadata": {"labels": {"theirs": "2"}}},
        fieldManager="two",
    )
    less = valve("one", port=80)
    less["metadata"]["labels"] = {"both": "1"}
    changed = api.apply(VALVES, namespace, less)
    assert changed["spec"] == {
        "size": 3,
        "color": "red",
        "port": 80,
        "note": "by hand",
        "nested": {"depth": 7},
    }
    assert changed["metadata"]["labels"] == {"both": "1", "theirs": "2"}


def test_what_two_apply_stays_until_both_leave_it(api: Api, namespace: str) -> None:
    """A field that two managers apply with the same value stays until both leave it out."""
    api.apply(VALVES, namespace, valve("one", code="abc"), "one")
    api.apply(VALVES, namespace, valve("one", code="abc"), "two")
    assert api.apply(VALVES, namespace, valve("one"), "one")["spec"]["code"] == "abc"
    assert "code" not in api.apply(VALVES, namespace, valve("one"), "two")["spec"]


def test_what_others_apply_is_taken_by_force(api: Api, namespace: str) -> None:
    """Applying by force takes a field from another manager, who then cannot remove it any more."""
    api.apply(VALVES, namespace, valve("one", code="abc"), "one")
    taken = api.apply(VALVES, namespace, valve("one", code="xyz"), "two", force="true")
    assert taken["spec"]["code"] == "xyz"
    assert api.apply(VALVES, namespace, valve("one"), "one")["spec"]["code"] == "xyz"
    api.merge(VALVES, namespace, "one", {"spec": {"code": "hand"}}, fieldManager="three")
    assert (
        api.apply(VALVES, namespace, valve("one", code="xyz"), "two", force="true")["spec"]["code"] == "xyz"
    )


def test_built_in_kinds_are_applied_as_well(api: Api, namespace: str) -> None:
    """Server-side apply works for built-in kinds such as Service, and applying the same again changes
    nothing.
    """
    ports = [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"selector": {"app": "web"}, "ports": ports},
    }
    made = api.apply(SERVICES, namespace, service, "eurekube", force="true")
    assert made["spec"]["ports"] == ports
    again = api.apply(SERVICES, namespace, service, "eurekube", force="true")
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


# --- deleted


def test_a_deleted_object_is_gone(api: Api, namespace: str) -> None:
    """A deleted object is gone, and a later one of the same name has another UID."""
    made = api.create(CONFIG_MAPS, namespace, config_map("one"))
    api.delete(CONFIG_MAPS, namespace, "one", {"propagationPolicy": "Background"})
    assert not api.is_there(CONFIG_MAPS, namespace, "one")
    again = api.create(CONFIG_MAPS, namespace, config_map("one"))
    assert again["metadata"]["uid"] != made["metadata"]["uid"]


def test_finalizers_keep_a_deleted_object(api: Api, namespace: str) -> None:
    """A deleted object stays until its last finalizer is removed; no finalizer can be added."""
    item = valve("one")
    item["metadata"]["finalizers"] = ["contract.eurekube.io/a", "contract.eurekube.io/b"]
    api.create(VALVES, namespace, item)
    left = api.delete(VALVES, namespace, "one")
    assert left["metadata"]["deletionTimestamp"].endswith("Z")
    assert left["metadata"]["generation"] == 2
    assert api.delete(VALVES, namespace, "one")["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": [*item["metadata"]["finalizers"], "contract.eurekube.io/c"]}}
    with pytest.raises(KubernetesError, match="finalizers") as raised:
        api.merge(VALVES, namespace, "one", more)
    assert refusal(raised) == (422, "Invalid")
    api.merge(VALVES, namespace, "one", {"metadata": {"finalizers": ["contract.eurekube.io/b"]}})
    assert api.is_there(VALVES, namespace, "one")
    api.merge(VALVES, namespace, "one", {"metadata": {"finalizers": []}})
    assert not api.is_there(VALVES, namespace, "one")


def test_a_deleted_namespace_takes_its_objects_along(api: Api, namespace: str) -> None:
    """A deleted namespace waits for finalizers of its objects, and nothing can be created in it meanwhile."""
    item = valve("one")
    item["metadata"]["finalizers"] = ["contract.eurekube.io/a"]
    api.create(VALVES, namespace, item)
    api.create(CONFIG_MAPS, namespace, config_map("one"))
    api.delete(NAMESPACES, None, namespace)
    ended = {"metadata": {"finalizers": None}}
    _wait(lambda: "deletionTimestamp" in api.get(VALVES, namespace, "one")["metadata"])
    assert api.get(NAMESPACES, None, namespace)["status"]["phase"] == "Terminating"
    with pytest.raises(KubernetesError) as raised:
        api.create(CONFIG_MAPS, namespace, config_map("two"))
    assert refusal(raised) == (403, "Forbidden")
    api.merge(VALVES, namespace, "one", ended)
    _wait(lambda: not api.is_there(NAMESPACES, None, namespace))
    assert not api.is_there(CONFIG_MAPS, namespace, "one")


def _wait(holds: Any) -> None:
    for _ in range(600):
        if holds():
            return
        threading.Event().wait(0.05)
    raise AssertionError("waited for 30 s in vain")


# --- watched


class Watch:
    """A watch that a thread reads, with the events so far."""

    def __init__(self, api: Api, resource: ApiResource, namespace: str, **query: str) -> None:
        self.events: list[tuple[str, str]] = []
        self.objects: list[Object] = []
        self.ended = threading.Event()
        self._opened = threading.Event()
        self._lines = api.access.watch(
            resource.path(namespace), {"timeoutSeconds": "20", **query}, 30.0, self._opened.set
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self._opened.wait(10)

    def _read(self) -> None:
        with suppress(KubernetesError):  # the server may end before the watch does
            for event in self._lines:
                if event["type"] != "BOOKMARK":
                    self.objects.append(event["object"])
                    name = (event["object"].get("metadata") or {}).get("name", "")
                    self.events.append((event["type"], name))
            self.ended.set()

    def has(self, *events: tuple[str, str]) -> bool:
        """Wait until the watch has reported these events, and no others."""
        _wait(lambda: len(self.events) >= len(events))
        return self.events == [*events]


def test_a_watch_goes_on_from_a_version(api: Api, namespace: str) -> None:
    """A watch from a version reports all later changes and no earlier ones."""
    api.create(VALVES, namespace, valve("before"))
    listed = api.list(VALVES, namespace)
    api.create(VALVES, namespace, valve("one"))
    watch = Watch(api, VALVES, namespace, resourceVersion=listed["metadata"]["resourceVersion"])
    changed = api.merge(VALVES, namespace, "one", {"spec": {"size": 4}})
    api.delete(VALVES, namespace, "one")
    api.create(VALVES, namespace, valve("two"))
    assert watch.has(("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one"), ("ADDED", "two"))
    assert watch.objects[1] == changed
    versions = [int(one["metadata"]["resourceVersion"]) for one in watch.objects]
    assert versions == sorted(set(versions))
    again = Watch(api, VALVES, namespace, resourceVersion=str(versions[1]))
    assert again.has(("DELETED", "one"), ("ADDED", "two"))


def test_a_watch_without_a_version_begins_with_what_there_is(api: Api, namespace: str) -> None:
    """A watch without a version begins with the existing objects, as for a replica that waits for its
    Lease.
    """
    api.create(LEASES, namespace, {"metadata": {"name": "one"}})
    api.create(LEASES, namespace, {"metadata": {"name": "other"}})
    watch = Watch(api, LEASES, namespace, fieldSelector="metadata.name=one")
    api.merge(LEASES, namespace, "other", {"spec": {"holderIdentity": "x"}})
    api.merge(LEASES, namespace, "one", {"spec": {"holderIdentity": "x"}})
    assert watch.has(("ADDED", "one"), ("MODIFIED", "one"))
    assert (watch.objects[0]["apiVersion"], watch.objects[0]["kind"]) == ("coordination.k8s.io/v1", "Lease")


def test_a_watch_of_labels_tells_of_what_comes_and_goes(api: Api, namespace: str) -> None:
    """An object that loses the label is reported as DELETED to a watch of that label."""
    listed = api.list(VALVES, namespace)
    watch = Watch(
        api,
        VALVES,
        namespace,
        resourceVersion=listed["metadata"]["resourceVersion"],
        labelSelector="tier=web",
    )
    api.create(VALVES, namespace, valve("one"))
    api.merge(VALVES, namespace, "one", {"metadata": {"labels": {"tier": "web"}}})
    api.merge(VALVES, namespace, "one", {"spec": {"size": 4}})
    api.merge(VALVES, namespace, "one", {"metadata": {"labels": {"tier": None}}})
    api.delete(VALVES, namespace, "one")
    api.create(VALVES, namespace, {**valve("two"), "metadata": {"name": "two", "labels": {"tier": "web"}}})
    assert watch.has(("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one"), ("ADDED", "two"))


def test_a_watch_ends_when_its_time_is_over(api: Api, namespace: str) -> None:
    """A watch ends without an error after its time, so that the next one continues from its last version."""
    listed = api.list(VALVES, namespace)
    query = {"resourceVersion": listed["metadata"]["resourceVersion"], "timeoutSeconds": "1"}
    assert Watch(api, VALVES, namespace, **query).ended.wait(10)


def test_a_version_that_is_forgotten_has_expired(api: Api, namespace: str) -> None:
    """A watch from a forgotten version ends with an event that has the code 410."""
    watch = Watch(api, VALVES, namespace, resourceVersion="1")
    _wait(lambda: watch.events)
    assert watch.events[0][0] == "ERROR"
    assert (watch.objects[0]["kind"], watch.objects[0]["code"]) == ("Status", 410)


# --- custom kinds


def test_defaults_are_filled_in(api: Api, namespace: str) -> None:
    """Defaults are filled in at every level, lists included; null counts as missing where it is not
    allowed.
    """
    item = valve("one", ends=[{"name": "a"}, {"name": "b", "width": 9}], color=None, note=None)
    made = api.create(VALVES, namespace, item)
    assert made["spec"] == {
        "size": 3,
        "color": "red",
        "note": None,
        "nested": {"depth": 7},
        "ends": [{"name": "a", "width": 3}, {"name": "b", "width": 9}],
    }
    syncer = {
        "apiVersion": "eurekube.io/v1alpha1",
        "kind": "EurekaSyncer",
        "metadata": {"name": "rating"},
        "spec": {"mode": "pod", "selector": {"app": "rating"}},
    }
    spec = api.create(SYNCERS, namespace, syncer)["spec"]
    assert (spec["policy"], spec["notReady"], spec["onTermination"]) == ("Sync", "Down", "Deregister")


def test_unknown_fields_are_pruned(api: Api, namespace: str) -> None:
    """Unknown fields are dropped, except where the schema keeps them."""
    spec: Mapping[str, Any] = {
        "unknown": 1,
        "free": {"a": {"b": 1}},
        "ends": [{"name": "a", "unknown": 2}],
        "labels": {"any": "1"},
    }
    made = api.create(VALVES, namespace, {**valve("one", **spec), "unknown": {}})
    assert "unknown" not in made
    assert made["spec"] == {
        "size": 3,
        "color": "red",
        "free": {"a": {"b": 1}},
        "labels": {"any": "1"},
        "nested": {"depth": 7},
        "ends": [{"name": "a", "width": 3}],
    }


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"size": None}, "spec.size"),
        ({"size": 0}, "spec.size"),
        ({"size": 10}, "spec.size"),
        ({"size": "3"}, "spec.size"),
        ({"size": 2.5}, "spec.size"),
        ({"size": True}, "spec.size"),
        ({"ratio": "x"}, "spec.ratio"),
        ({"port": True}, "spec.port"),
        ({"color": "green"}, "spec.color"),
        ({"code": "ABC"}, "spec.code"),
        ({"code": "a"}, "spec.code"),
        ({"code": "abcde"}, "spec.code"),
        ({"is_open": "yes"}, "spec.is_open"),
        ({"tags": ["a", "b", "c"]}, "spec.tags"),
        ({"tags": ["a", "a"]}, "spec.tags[1]"),
        ({"tags": [1]}, "spec.tags[0]"),
        ({"tags": {"a": 1}}, "spec.tags"),
        ({"labels": {"a": "1", "b": "2", "c": "3"}}, "spec.labels"),
        ({"labels": {"a": 1}}, "spec.labels.a"),
        ({"ends": [{}]}, "spec.ends[0].name"),
        ({"ends": [{"name": "a"}, {"name": "a"}]}, "spec.ends[1]"),
    ],
)
def test_what_the_schema_does_not_allow_is_refused(
    api: Api, namespace: str, spec: Mapping[str, Any], field: str
) -> None:
    """An object that breaks the schema is answered with 422 and the name of the field."""
    item = valve("one")
    item["spec"] |= spec
    with pytest.raises(KubernetesError) as raised:
        api.create(VALVES, namespace, item)
    assert refusal(raised) == (422, "Invalid")
    assert field in str(raised.value)


@pytest.mark.parametrize(
    "spec", [{"port": 80}, {"port": "http"}, {"ratio": 3}, {"ratio": 2.5}, {"note": None}, {"is_open": False}]
)
def test_what_the_schema_allows_is_taken(api: Api, namespace: str, spec: Mapping[str, Any]) -> None:
    """A valid object is stored as sent, including fields that allow two types or null."""
    made = api.create(VALVES, namespace, valve("one", **spec))
    assert made["spec"].items() >= spec.items()


def test_a_patch_is_checked_as_well(api: Api, namespace: str) -> None:
    """A patch or apply that breaks the schema is refused, also in the status."""
    api.create(VALVES, namespace, valve("one"))
    asks: list[Callable[[], Object]] = [
        lambda: api.merge(VALVES, namespace, "one", {"spec": {"size": None}}),
        lambda: api.merge(VALVES, namespace, "one", {"spec": {"size": 50}}),
        lambda: api.apply(VALVES, namespace, valve("one", size=50), force="true"),
        lambda: api.merge(VALVES, namespace, "one", {"status": {"phase": 1}}, "status"),
    ]
    for ask in asks:
        with pytest.raises(KubernetesError) as raised:
            ask()
        assert refusal(raised) == (422, "Invalid")


def test_a_custom_kind_goes_with_its_definition(api: Api, unique_name: str) -> None:
    """Deleting a CustomResourceDefinition deletes its objects; they do not return with it."""
    document = yaml.safe_load(yaml.safe_dump(VALVE_CRD))
    document["spec"] |= {"group": "gone.eurekube.io", "scope": "Cluster"}
    document["metadata"]["name"] = "valves.gone.eurekube.io"
    kind = ApiResource("gone.eurekube.io", "v1", "valves")
    installed(api, document)
    item = {**valve(unique_name), "apiVersion": "gone.eurekube.io/v1"}
    api.create(kind, None, item)
    api.delete(CRDS, None, document["metadata"]["name"])
    _wait(lambda: not api.is_there(CRDS, None, document["metadata"]["name"]))
    _wait(lambda: not api.access.serves_kind(kind))
    installed(api, document)

    def is_empty() -> bool:
        try:
            return not api.list(kind, None)["items"]
        except KubernetesError as error:  # its storage is being made
            if error.status_code != 429:
                raise
            return False

    _wait(is_empty)
    api.delete(CRDS, None, document["metadata"]["name"])


# --- who asks


def test_a_service_account_gets_a_token(api: Api, namespace: str) -> None:
    """A ServiceAccount's token is accepted; only a real API server checks its roles."""
    api.create(ACCOUNTS, namespace, {"metadata": {"name": "operator"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = api.access.request("POST", ACCOUNTS.path(namespace, "operator", "token"), body=request)
    assert answer["status"]["expirationTimestamp"].endswith("Z")
    own = api.with_token(answer["status"]["token"])
    assert own.get("/apis/eurekube.io/v1alpha1")["kind"] == "APIResourceList"
    with pytest.raises(KubernetesError) as raised:
        api.access.request("POST", ACCOUNTS.path(namespace, "nobody", "token"), body=request)
    assert refusal(raised) == (404, "NotFound")


def test_full_rights_are_reported(api: Api) -> None:
    """The access review of the operator's self-check reports that everything is allowed."""
    attributes = {"verb": "list", "resource": "services", "group": ""}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = api.access.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=review)
    assert answer["status"]["allowed"] is True


def test_an_event_is_written(api: Api, namespace: str) -> None:
    """An Event in the form that the operator writes is accepted."""
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "rating.1", "namespace": namespace},
        "eventTime": "2027-01-15T08:00:00.000000Z",
        "reportingController": "eurekube.io/operator",
        "reportingInstance": "one",
        "action": "Registered",
        "reason": "Registered",
        "type": "Normal",
        "note": "1 instance of RATING registered",
        "regarding": {
            "apiVersion": "eurekube.io/v1alpha1",
            "kind": "EurekaSyncer",
            "name": "rating",
            "namespace": namespace,
        },
    }
    api.create(EVENTS, namespace, event)
    (held,) = api.list(EVENTS, namespace)["items"]
    assert held["note"] == event["note"]


def test_a_slice_is_replaced_as_a_whole(api: Api, namespace: str) -> None:
    """An update replaces an EndpointSlice's endpoints and raises the generation."""
    item = {
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}],
    }
    made = api.create(SLICES, namespace, item)
    assert made["endpoints"] == item["endpoints"]
    ready = {"addresses": ["10.0.0.2"], "conditions": {"ready": False, "serving": True, "terminating": True}}
    changed = api.update(SLICES, namespace, {**made, "endpoints": [ready]})
    assert changed["endpoints"] == [ready]
    assert (made["metadata"]["generation"], changed["metadata"]["generation"]) == (1, 2)

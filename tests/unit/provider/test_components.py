"""Components for every language: the resources that the engine gets when it constructs one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from pulumi.runtime.proto import provider_pb2 as proto

from eurekube_provider.dev.kubernetes.kubernetes_api import KubernetesApi
from eurekube_provider.provider.wire import UNKNOWN_TEXT, encode_properties
from eurekube_provider.registrations.secret_values import OUTPUT_SIGNATURE, SECRET_SIGNATURE, SIGNATURE_KEY
from eurekube_provider.registrations.values import UNKNOWN
from tests.unit.provider.fake_engine import KUBECONFIG, FakeEngine, FakeMonitor, fake_engine

OPERATOR, SYNCER = "eurekube:index:Operator", "eurekube:index:Syncer"
DEPLOYMENT, SECRETS = "kubernetes:apps/v1:Deployment", "kubernetes:core/v1:Secret"
URLS = ["http://eureka:8761/eureka"]
BUCKET = "urn:pulumi:dev::shop::test:index:Bucket::bucket"


@pytest.fixture(scope="module")
def engine() -> Iterator[FakeEngine]:
    """Yield one provider for all tests, since it keeps nothing of a component."""
    with fake_engine() as found:
        yield found


def secret(value: Any) -> dict[str, Any]:
    """Return a value marked as secret."""
    return {SIGNATURE_KEY: SECRET_SIGNATURE, "value": value}


def output(value: Any = None, *urns: str, secret: bool = False) -> dict[str, Any]:
    """Return a value as an SDK sends another resource's output; None stands for an unknown one."""
    found: dict[str, Any] = {SIGNATURE_KEY: OUTPUT_SIGNATURE, "dependencies": list(urns), "secret": secret}
    return found if value is None else {**found, "value": value}


def refused(engine: FakeEngine, type_: str, **inputs: Any) -> str:
    """Construct a component that is refused, and return the error's text."""
    with pytest.raises(grpc.RpcError) as raised:
        engine.construct(type_, "eurekube", encode_properties(inputs))
    return str(raised.value.details())  # type: ignore[attr-defined]


def plain(message: Any) -> Any:
    """Return a resource's inputs as a dictionary."""
    return json_format.MessageToDict(message)  # type: ignore[no-untyped-call]


def deployment(monitor: FakeMonitor) -> Any:
    """Return the inputs of the operator's Deployment."""
    (request,) = monitor.of_type(DEPLOYMENT)
    return plain(request.object)


def variables(monitor: FakeMonitor) -> dict[str, Any]:
    """Return the environment variables of the operator's container."""
    (container,) = deployment(monitor)["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


HOOK = {"kind": "webhook", "namespaces": ["shop"], "url": "https://ci/hook"}


def test_an_operator_is_what_the_python_component_is(engine: FakeEngine) -> None:
    """The component has the native provider's type and typed outputs, and is the parent of all its parts."""
    inputs = encode_properties(
        {
            "eurekaUrls": URLS,
            "replicas": 2,
            "namespace": "bridge",
            "watchNamespaces": ["shop"],
            "environment": {"LOG_LEVEL": "DEBUG"},
            "networkPolicy": True,
            "egressPorts": [3128],
            "nodeSelector": {"disk-type": "ssd"},
            "tolerations": [{"key": "dedicated", "operator": "Exists", "tolerationSeconds": 30}],
            "imagePullSecrets": ["registry"],
            "targets": {"ci": {**HOOK, "authorizationFile": "/etc/hook"}},
        }
    )
    answer, monitor = engine.construct(OPERATOR, "eurekube", inputs)
    assert answer.urn == f"urn:pulumi:dev::shop::{OPERATOR}::eurekube"
    assert dict(answer.state) == {
        "namespace": "bridge",
        "serviceAccount": "eurekube-operator",
        "operatorName": "eurekube",
    }
    parts = [request for request in monitor.made.values() if request.type != OPERATOR]
    assert {request.parent for request in parts} == {answer.urn}
    assert ("eurekube-role-shop", "kubernetes:rbac.authorization.k8s.io/v1:Role") in monitor.made
    pod = deployment(monitor)["spec"]["template"]["spec"]
    assert (deployment(monitor)["spec"]["replicas"], pod["nodeSelector"]) == (2, {"disk-type": "ssd"})
    assert pod["tolerations"] == [{"key": "dedicated", "operator": "Exists", "tolerationSeconds": 30}]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert variables(monitor)["LOG_LEVEL"] == "DEBUG"
    (config,) = monitor.of_type("kubernetes:core/v1:ConfigMap")
    assert "url: https://ci/hook" in plain(config.object)["data"]["operator.yaml"]
    assert [plain(each) for each in monitor.outputs.values()] == [dict(answer.state)]


def test_a_syncer_is_what_the_python_component_is(engine: FakeEngine) -> None:
    """The EurekaSyncer's spec has the given arguments; a port may be a number or a name."""
    given = {"namespace": "shop", "app": "rating", "port": 8080, "securePort": "https", "labels": {"a": "b"}}
    answer, monitor = engine.construct(SYNCER, "rating", encode_properties(given))
    assert dict(answer.state) == {"name": "rating", "namespace": "shop"}
    (request,) = monitor.of_type("kubernetes:eurekube.io/v1alpha1:EurekaSyncer")
    made = plain(request.object)
    assert made["spec"] == {
        "mode": "pod",
        "selector": {"app": "rating"},
        "port": 8080,
        "securePort": "https",
    }
    assert made["metadata"]["labels"]["a"] == "b"


def test_secrets_stay_secrets_and_outputs_keep_what_they_depend_on(engine: FakeEngine) -> None:
    """Secrets stay secret and dependencies are kept, in single values and in whole maps."""
    inputs = encode_properties({"eurekaUrls": URLS, "user": "me"})
    inputs.update(
        {
            "password": output("hidden-1", BUCKET, secret=True),
            "token": None,
            "environment": {"A": output("open", BUCKET), "B": secret("hidden-2")},
            "podAnnotations": secret({"note": "hidden-3"}),
        }
    )
    _, monitor = engine.construct(OPERATOR, "eurekube", inputs)
    (made,) = monitor.of_type(SECRETS)
    assert plain(made.object)["stringData"][SIGNATURE_KEY] == SECRET_SIGNATURE
    assert BUCKET in made.propertyDependencies["stringData"].urns
    (request,) = monitor.of_type(DEPLOYMENT)
    assert BUCKET in request.propertyDependencies["spec"].urns
    shown = str(_without_secrets(plain(request.object)))
    assert "hidden" not in shown
    assert "open" in shown
    assert all("hidden" not in str(_without_secrets(plain(one.object))) for one in monitor.made.values())


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        if value.get(SIGNATURE_KEY) == SECRET_SIGNATURE or value.get("secret"):
            return None
        return {key: _without_secrets(item) for key, item in value.items()}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def test_a_number_without_quotes_is_a_text(engine: FakeEngine) -> None:
    """YAML parses an unquoted name of digits as a number, and Pulumi's YAML accepts it."""
    inputs = encode_properties({"eurekaUrls": URLS, "operatorName": 5})
    answer, _ = engine.construct(OPERATOR, "eurekube", inputs)
    assert answer.state["operatorName"] == "5"


def test_what_stands_in_clear_must_not_be_a_secret(engine: FakeEngine) -> None:
    """A secret is refused for an argument that Kubernetes objects contain in clear."""
    said = refused(engine, OPERATOR, eurekaUrls=secret(URLS))
    assert said == (
        "Operator 'eurekube': eurekaUrls[0] must not be a secret: it stands in clear in objects of the"
        " cluster, or names them"
    )
    said = refused(engine, OPERATOR, eurekaUrls=URLS, namespace=secret("bridge"))
    assert "namespace must not be a secret" in said


def test_what_is_not_known_yet_hides_nothing_but_itself(engine: FakeEngine) -> None:
    """An unknown value is unknown in the object that contains it; the object is previewed."""
    inputs = encode_properties(
        {"eurekaUrls": URLS, "environment": {"A": UNKNOWN, "B": "known"}, "image": UNKNOWN}
    )
    answer, monitor = engine.construct(OPERATOR, "eurekube", inputs, dryRun=True)
    assert answer.state["namespace"] == "eurekube-system"
    assert (variables(monitor)["A"], variables(monitor)["B"]) == (UNKNOWN_TEXT, "known")


def test_a_preview_without_object_names_shows_the_component_alone(engine: FakeEngine) -> None:
    """A warning gives the reason, and the outputs are unknown, so that the preview of other resources goes
    on.
    """
    inputs = encode_properties({"eurekaUrls": [UNKNOWN], "watchNamespaces": ["shop"]})
    answer, monitor = engine.construct(OPERATOR, "eurekube", inputs, dryRun=True)
    assert list(monitor.made) == [("eurekube", OPERATOR)]
    assert dict(answer.state)["namespace"] == UNKNOWN_TEXT
    assert "eurekaUrls[0] is known only after the update" in engine.log.shown[-1]


def test_a_component_depends_on_what_its_arguments_depend_on(engine: FakeEngine) -> None:
    """The component then is deleted before the resources that its arguments come from."""
    inputs = encode_properties({"eurekaUrls": URLS})
    inputs.update({"watchNamespaces": [output("shop", BUCKET)]})
    reported = {"watchNamespaces": proto.ConstructRequest.PropertyDependencies(urns=[BUCKET])}
    _, monitor = engine.construct(OPERATOR, "eurekube", inputs, inputDependencies=reported)
    assert list(monitor.made["eurekube", OPERATOR].dependencies) == [BUCKET]


@pytest.mark.parametrize(
    ("type_", "inputs", "part"),
    [
        (
            SYNCER,
            {"namespace": "shop", "app": "rating"},
            "kubernetes:eurekube.io/v1alpha1:EurekaSyncer",
        ),
        (OPERATOR, {"eurekaUrls": URLS}, DEPLOYMENT),
    ],
)
def test_options_are_the_components(
    engine: FakeEngine, type_: str, inputs: dict[str, Any], part: str
) -> None:
    """The parts get the component's Kubernetes provider and protection; the component keeps its aliases."""
    kubernetes = "urn:pulumi:dev::shop::pulumi:providers:kubernetes::k8s::some-id"
    above = "urn:pulumi:dev::shop::test:index:Above::above"
    _, monitor = engine.construct(
        type_,
        "rating",
        encode_properties(inputs),
        providers={"kubernetes": kubernetes},
        parent=above,
        protect=True,
        dependencies=[BUCKET],
        aliases=[{"spec": {"type": "test:index:Former"}}],
    )
    component = monitor.made["rating", type_]
    (made,) = monitor.of_type(part)
    assert (component.parent, component.protect, list(component.dependencies)) == (above, True, [BUCKET])
    assert [alias.spec.type for alias in component.aliases] == ["test:index:Former"]
    assert made.provider.startswith("urn:pulumi:dev::shop::pulumi:providers:kubernetes::k8s::")
    assert made.protect


def test_an_operators_namespace_is_made_only_where_there_is_none(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook asks the program's cluster before the namespace is created, and refuses one that exists; with
    ``createNamespace: false`` nobody is asked.
    """
    kubernetes = {"kubernetes": "urn:pulumi:dev::shop::pulumi:providers:kubernetes::k8s::some-id"}

    def said(namespace: str, **more: Any) -> dict[str, str]:
        inputs = encode_properties({"eurekaUrls": URLS, "namespace": namespace, **more})
        refused: dict[str, str] = engine.construct(OPERATOR, "eurekube", inputs, providers=kubernetes)[
            1
        ].refused
        return refused

    with KubernetesApi() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig").read_text()
        reached = "tests.unit.provider.fake_engine.KUBECONFIG"
        monkeypatch.setattr(reached, kubeconfig.replace("eurekube-dev", "prod"))
        assert said("shop") == {"eurekube-namespace": ""}
        assert said("default", createNamespace=False) == {}
        (there,) = said("default").values()
    assert there.startswith("Operator: the namespace default already exists: set createNamespace to false")
    (away,) = said("shop").values()
    assert away.startswith("Operator: whether the namespace shop already exists is not known: ")


def test_an_operator_has_a_guard_that_goes_first(engine: FakeEngine) -> None:
    """The guard depends on all that the operator needs to work, and has the cluster's kubeconfig and
    context.
    """
    kubernetes = "urn:pulumi:dev::shop::pulumi:providers:kubernetes::k8s::some-id"
    inputs = encode_properties({"eurekaUrls": URLS, "watchNamespaces": ["shop"]})
    _, monitor = engine.construct(OPERATOR, "eurekube", inputs, providers={"kubernetes": kubernetes})
    (guard,) = monitor.of_type("eurekube:index:OperatorGuard")
    assert [alias.spec.type for alias in guard.aliases] == ["pulumi-python:dynamic/eurekube:OperatorGuard"]
    made = plain(guard.object)
    assert made.pop("kubeconfig") == {SIGNATURE_KEY: SECRET_SIGNATURE, "value": KUBECONFIG}
    assert made == {
        "namespace": "eurekube-system",
        "namespaceUid": "uid-of-eurekube-namespace",
        "watchNamespaces": ["shop"],
        "stackLabel": "shop.dev",
        "ownsCrds": False,
        "force": False,
        "context": "prod",
    }
    needed = {urn.rpartition("::")[2] for urn in guard.dependencies}
    assert {"eurekube", "eurekube-service", "eurekube-namespace"} <= needed


def test_several_are_made_at_a_time_each_for_its_own_stack(engine: FakeEngine) -> None:
    """One plugin process constructs components of several stacks at once, although the SDK's settings are
    global.
    """
    found: dict[str, Any] = {}

    def make(stack: str) -> None:
        inputs = encode_properties({"eurekaUrls": URLS, "namespace": stack})
        found[stack] = engine.construct(OPERATOR, "eurekube", inputs, stack=stack)

    threads = [threading.Thread(target=make, args=(f"stack-{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for stack, (answer, monitor) in found.items():
        assert answer.state["namespace"] == stack
        labels = deployment(monitor)["metadata"]["labels"]
        assert labels["eurekube.io/stack"] == f"shop.{stack}"
        assert all(
            request.type != OPERATOR or request.name == "eurekube" for request in monitor.made.values()
        )
    assert len({len(monitor.made) for _, monitor in found.values()}) == 1
    assert len(found) == 6


@pytest.mark.parametrize(
    ("type_", "inputs", "sentence"),
    [
        (OPERATOR, {}, "Operator: eurekaUrls is required"),
        (OPERATOR, {"eurekaUrls": URLS, "replicas": -1}, "Operator: replicas must be a whole number"),
        (
            OPERATOR,
            {"eurekaUrls": URLS, "egressPorts": [8080]},
            "Operator: egressPorts means nothing without networkPolicy",
        ),
        (OPERATOR, {"eurekaUrls": URLS, "eurekaSecret": {}}, "Operator: eurekaSecret: name is required"),
        (
            SYNCER,
            {"namespace": "shop"},
            "Syncer 'eurekube': app, matchLabels, service or services must say which Service is meant",
        ),
        (OPERATOR, {"eurekaUrls": ["a", True]}, "Operator 'eurekube': eurekaUrls[1] must be a text"),
        (OPERATOR, {"eurekaUrls": URLS, "clusterName": [1]}, "clusterName must be a text"),
        (OPERATOR, {"eurekaUrls": URLS, "password": {"a": "b"}}, "password must be a text"),
        (
            OPERATOR,
            {"eurekaUrls": URLS, "environment": {"A": 1}},
            "environment: A must be text: put its value",
        ),
        (OPERATOR, {"eurekaUrls": URLS, "environment": {"A": [1]}}, "environment.A must be a text"),
        (OPERATOR, {"eurekaUrls": URLS, "tolerations": {}}, "tolerations must be a list"),
        (
            OPERATOR,
            {"eurekaUrls": URLS, "connections": {"eu": {"urls": "x"}}},
            "connections.eu.urls must be a list",
        ),
        (SYNCER, {"namespace": secret(["s"]), "app": "rating"}, "namespace must be a text"),
        ("eurekube:index:Nothing", {}, "there is no component 'eurekube:index:Nothing'"),
    ],
)
def test_problems_are_one_sentence_in_the_schemas_words(
    engine: FakeEngine, type_: str, inputs: dict[str, Any], sentence: str
) -> None:
    """Each component refuses wrong arguments without a traceback, with the schema's names."""
    said = refused(engine, type_, **inputs)
    assert sentence in said
    assert "Traceback" not in said


def test_without_kubernetes_packages_a_sentence_says_what_to_install(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only components need pulumi-kubernetes; the error gives the command that installs it."""
    for name in [name for name in sys.modules if name.startswith("eurekube_provider.provider.hosted")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("eurekube_provider.provider.hosted")
    monkeypatch.delitem(sys.modules, "eurekube_provider.resources.operator_component.component")
    monkeypatch.setitem(sys.modules, "pulumi_kubernetes", None)
    for name in [name for name in sys.modules if name.startswith("pulumi_kubernetes.")]:
        monkeypatch.delitem(sys.modules, name)
    said = refused(engine, OPERATOR, eurekaUrls=URLS)
    assert "a component needs the package pulumi-kubernetes, which is not installed" in said
    assert "pip install 'eurekube-provider[kubernetes]'" in said

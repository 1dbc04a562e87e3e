"""The arguments of an EurekubeOperator: derived values and refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pulumi
import pytest

from eurekube_provider import (
    EurekaSecretArgs,
    EurekaSecretArgsDict,
    EurekubeOperatorArgs,
    EurekubeOperatorArgsDict,
    __version__,
)
from eurekube_provider.operator.triggers.targets import COMMON_TARGET_OPTIONS, OPTIONS_BY_TARGET_KIND
from eurekube_provider.resources.files import crd_documents
from eurekube_provider.resources.operator_component.credentials import CREDENTIALS_SECRET_NAME, SECRET_ENTRIES
from eurekube_provider.resources.operator_component.deployment import operator_deployment_spec
from eurekube_provider.resources.operator_component.operator_arguments import (
    operator_selector,
    parse_operator_args,
)
from eurekube_provider.resources.operator_component.pod_arguments import (
    PodTolerationArgs,
    PodTolerationArgsDict,
)
from eurekube_provider.resources.operator_component.target_arguments import TargetArgs
from eurekube_provider.resources.program import ProgramError


def args(**more: Any) -> EurekubeOperatorArgs:
    """Return arguments with a Eureka URL."""
    return EurekubeOperatorArgs(**{"eureka_urls": ["http://eureka:8761/eureka"], **more})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, f"ghcr.io/eurekube/eurekube-operator:{__version__}"),
        ({"tag": "edge"}, "ghcr.io/eurekube/eurekube-operator:edge"),
        ({"image": "registry:5000/eurekube", "tag": "1.2"}, "registry:5000/eurekube:1.2"),
        ({"image": "registry:5000/eurekube"}, f"registry:5000/eurekube:{__version__}"),
        ({"image": "registry:5000/eurekube:own"}, "registry:5000/eurekube:own"),
        ({"image": "eurekube@sha256:0123"}, "eurekube@sha256:0123"),
    ],
)
def test_image_and_tag(given: dict[str, str], expected: str) -> None:
    """The default is the default image with this version's tag."""
    assert args(**given).image_reference == expected


def test_ports_of_eureka() -> None:
    """A URL without a port yields its scheme's default port."""
    urls = ["http://a:8761/eureka", "https://b/eureka", "http://c/eureka", "http://d:8761/eureka"]
    assert args(eureka_urls=urls).eureka_ports == [80, 443, 8761]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"eureka_urls": []}, "eureka_urls needs at least one service URL"),
        ({"eureka_urls": ["http://me:s3cret@eureka/eureka"]}, "eureka_urls must not carry credentials"),
        ({"replicas": "3"}, "replicas must be a whole number from 0 on"),
        ({"environment": {"WEB_ADDRESS": ""}}, "environment must not set WEB_ADDRESS: probes and Service"),
        (
            {"environment": {"LEASE_NAME": "x"}},
            "environment must not set LEASE_NAME: the rights name the Lease",
        ),
        ({"environment": {"OPERATOR_NAME": "x"}}, "environment must not set OPERATOR_NAME"),
        ({"image": "a:1", "tag": "2"}, "the image 'a:1' has a tag or digest already"),
        ({"egress_ports": [8080]}, "egress_ports means nothing without network_policy"),
        ({"web_namespaces": ["monitoring"]}, "web_namespaces means nothing without network_policy"),
        ({"network_policy": True, "egress_ports": [0]}, "egress_ports: 0 must be a port from 1 to 65535"),
        (
            {"watch_namespaces": "shop"},
            "watch_namespaces must be a list, not str: write it as ['shop'], also where it has one entry",
        ),
        (
            {"watch_namespaces": (name for name in ("shop",))},
            "watch_namespaces must be a list, not generator",
        ),
        ({"watch_namespaces": {"shop": None}}, "watch_namespaces must be a list, not dict"),
        ({"gate_namespaces": "shop"}, "gate_namespaces must be a list, not str: write it as ['shop']"),
        ({"advertise_from": "Ingress"}, "advertise_from must be a list, not str: write it as ['Ingress']"),
        ({"advertise_from": ["NodePort"]}, "advertise_from: 'NodePort' must be Ingress or Gateway"),
        ({"gate_namespaces": ["*", "Shop"]}, "gate_namespaces: 'Shop' must be a namespace's name"),
        (
            {"gate_namespaces": ["shop"], "watch_namespaces": ["team"]},
            "gate_namespaces names shop, and watch_namespaces does not",
        ),
        ({"watch_namespaces": [""]}, "watch_namespaces: '' must be a namespace's name"),
        ({"watch_namespaces": [1]}, "watch_namespaces: 1 must be a namespace's name"),
        (
            {"network_policy": True, "web_namespaces": "monitoring"},
            "web_namespaces must be a list, not str: write it as ['monitoring']",
        ),
        (
            {"network_policy": True, "web_namespaces": ["Shop"]},
            "web_namespaces: 'Shop' must be a namespace's name",
        ),
        ({"network_policy": True, "egress_ports": "8080"}, "egress_ports must be a list, not str: write"),
        ({"network_policy": True, "egress_ports": 8080}, "egress_ports must be a list, not int: write"),
        ({"eureka_urls": "http://me:s3cret@eureka/eureka"}, "eureka_urls must be a list, not str: write"),
        (
            {"environment": {"RESYNC_SECONDS": 30}},
            "environment: RESYNC_SECONDS must be text: put its value in quotes",
        ),
        ({"environment": {"TAKE_OVER_CLUSTER": True}}, "environment: TAKE_OVER_CLUSTER must be text"),
        ({"environment": "LOG_LEVEL=DEBUG"}, "environment must be a map of texts, e.g. {'name'"),
        ({"operator_name": "Team A"}, "operator_name 'Team A' must be lower case letters, digits, '-' and"),
        ({"operator_name": "x" * 247}, "at most 246 characters: the replicas' Lease is named by it"),
        ({"operator_name": 7}, "operator_name 7 must be"),
        ({"cluster_name": "A_B"}, "cluster name 'A_B'"),
        ({"targets": {"ci": "webhook"}}, "targets: ci must be an object with a kind"),
        ({"targets": {"prod": {"kind": "pulumiStack", "stack": "prod"}}}, "stack must be NAMESPACE/NAME"),
        (
            {"targets": {"ci": {"kind": "webhook", "secret-file": "/etc/eurekube-targets/key"}}},
            "targets: ci: secret-file is /etc/eurekube-targets/key: add 'key' to target_secrets",
        ),
        (
            {"targets": {"ci": {"kind": "webhook", "url": "https://ci/hook?token=s3cret"}}},
            "targets: ci: url must have neither credentials nor a query",
        ),
        (
            {"targets": {"ci": TargetArgs(kind="webhook", url="https://me:s3cret@ci/hook")}},
            "name it with url_file: /etc/eurekube-targets/NAME",
        ),
        ({"user_roles": "yes"}, "user_roles must be true or false"),
        ({"egress_cidrs": ["192.0.2.0/24"]}, "egress_cidrs means nothing without network_policy"),
        ({"network_policy": True, "egress_cidrs": ["192.0.2.1/24"]}, "egress_cidrs: '192.0.2.1/24' must be"),
        ({"target_secrets": {"key": "s3cret"}}, "target_secrets means nothing without targets"),
        ({"connections": {"eu": {"urls": "http://a/e"}}}, "connections: eu: urls must be a list"),
        ({"connections": {"EU": {"urls": ["http://a/e"]}}}, "connections: EU must be a name"),
        ({"connections": {"default": {"urls": ["http://a/e"]}}}, "is what eureka_urls"),
        ({"connections": {"eu": {"url": ["http://a/e"]}}}, "connections: eu: "),
        ({"connections": {"eu": {"urls": ["http://u:s3cret@a/e"]}}}, "no URL may carry credentials"),
        ({"connections": {"eu": {"urls": ["z=http://u:s3cret@a/e"]}}}, "no URL may carry credentials"),
        (
            {"connections": {"eu": {"urls": ["http://a/e"], "token": "t", "user": "u"}}},
            "user and password or a bearer token, not both",
        ),
        (
            {"connections": {"eu": {"urls": ["http://a/e"], "mode": "fast"}}},
            "must be one of auto, rest, batch",
        ),
        (
            {"connections": {"eu": {"urls": ["http://a/e"]}}, "environment": {"CONFIG": "x"}},
            "must not set CONFIG: the connections are in a file",
        ),
        (
            {
                "targets": {"prod": {"kind": "pulumiStack", "stack": "infra/prod", "namespaces": ["shop"]}},
                "environment": {"CONFIG": "x"},
            },
            "must not set CONFIG",
        ),
        ({"targets": {"ci": {"kind": "webhook"}}}, "targets: ci: there is no namespaces: name those"),
        ({"targets": {"ci": {"kind": "webhook", "namespaces": "*"}}}, "targets: ci: give url or"),
        (
            {"targets": {"ci": {"kind": "webhook", "namespaces": "*", "url": "https://ci/hook"}}},
            "targets: ci: the receiver must be able to tell that it was us",
        ),
        ({"force_destroy": "yes"}, "force_destroy must be true or false"),
        ({"image_pull_secrets": "registry"}, "image_pull_secrets must be a list, not str: write it as"),
        ({"image_pull_secrets": [{"name": "x"}]}, "image_pull_secrets: {'name': 'x'} must be the name of"),
        ({"node_selector": {"disks": 2}}, "node_selector: disks must be text: put its value in quotes"),
        ({"tolerations": {"key": "x"}}, "tolerations must be a list, not dict"),
        ({"tolerations": [{"kay": "x"}]}, "tolerations[0]: there is no argument 'kay'; key is one"),
        ({"pod_annotations": ["x"]}, "pod_annotations must be a map of texts"),
        (
            {"pod_labels": {"app.kubernetes.io/name": "mine"}},
            "pod_labels must not set app.kubernetes.io/name, by which this component's objects are found",
        ),
        (
            {"deployment_labels": {"eurekube.io/stack": "mine"}},
            "deployment_labels must not set eurekube.io/stack",
        ),
        (
            {"service_account_labels": {"app.kubernetes.io/instance": "mine"}},
            "service_account_labels must not set app.kubernetes.io/instance",
        ),
        ({"password": "s3cret"}, "password means nothing without a user: add user, or EUREKA_USER"),
        (
            {"user": "me", "token": "s3cret"},
            "a user and password or a bearer token, not both: leave token away",
        ),
        (
            {"client_key": "s3cret"},
            "client_key means nothing without its certificate: add client_certificate",
        ),
        (
            {"environment": {"EUREKA_TOKEN": "s3cret"}},
            "must not set EUREKA_TOKEN, which would stand in clear",
        ),
        (
            {"user": "me", "environment": {"EUREKA_USER": "you"}},
            "environment must not set EUREKA_USER: user says it",
        ),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], sentence: str) -> None:
    """The error is one sentence without credentials, raised before any resource is created."""
    with pytest.raises(ProgramError) as refused:
        parse_operator_args(args(**given))
    assert str(refused.value).startswith("EurekubeOperator: ")
    assert sentence in str(refused.value)
    assert "s3cret" not in str(refused.value)


def secret(**keys: Any) -> dict[str, Any]:
    """Return arguments that use these keys of an existing Secret ``bridge``."""
    return {"eureka_secret": EurekaSecretArgs(name="bridge", **keys)}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (secret(), "eureka_secret takes nothing from the Secret: say under which keys"),
        ({"eureka_secret": {"user_key": "user"}}, "eureka_secret: name is required"),
        ({"eureka_secret": {"name": "bridge", "pasword_key": "x"}}, "'pasword_key'; password_key is one"),
        (
            {"eureka_secret": "bridge"},
            "eureka_secret: the arguments must be EurekaSecretArgs or a dictionary",
        ),
        (
            {"eureka_secret": EurekaSecretArgs(name="A_B", token_key="token")},
            "the name 'A_B' must be a Secret's",
        ),
        (
            {"eureka_secret": EurekaSecretArgs(name=CREDENTIALS_SECRET_NAME, token_key="token")},
            "is the Secret that this component makes itself",
        ),
        (secret(token_key="my s3cret!"), "token_key must be one of the Secret's keys"),
        (secret(token_key=""), "token_key must be one of the Secret's keys"),
        (
            {**secret(user_key="user", password_key="password"), "password": "s3cret"},
            "password and eureka_secret cannot both be given: the operator has it from one of them",
        ),
        (
            {**secret(token_key="token"), "user": "me"},
            "user and eureka_secret cannot both be given: the operator has its credentials from one of them",
        ),
        (
            {**secret(ca_certificate_key="ca.crt"), "ca_certificate": "PEM"},
            "ca_certificate and eureka_secret cannot both be given",
        ),
        (secret(password_key="password"), "eureka_secret.password_key means nothing without a user"),
        (secret(user_key="user", token_key="token"), "not both: leave eureka_secret.token_key away"),
        (secret(client_key_key="tls.key"), "add eureka_secret.client_certificate_key"),
        (
            {**secret(user_key="user"), "environment": {"EUREKA_USER": "me"}},
            "must not set EUREKA_USER: eureka_secret.user_key says it",
        ),
    ],
)
def test_a_secret_that_cannot_serve_is_refused(given: dict[str, Any], sentence: str) -> None:
    """Each credential must come from exactly one place, and related keys must be complete."""
    test_what_cannot_work_is_refused(given, sentence)


@pytest.mark.parametrize(
    "given",
    [
        {**secret(password_key="password"), "environment": {"EUREKA_USER": "me"}},
        {**secret(token_key="token"), "ca_certificate": "PEM"},
        secret(ca_certificate_key="ca.crt"),
        secret(client_certificate_key="both.pem"),
        {"user": "me", "password": "s3cret", "client_certificate": "PEM"},
    ],
)
def test_what_may_stand_together(given: dict[str, Any]) -> None:
    """A user name or CA certificate in clear may accompany a Secret; a client certificate's file may
    contain its key.
    """
    parse_operator_args(args(**given))


@pytest.mark.parametrize(
    "given",
    [
        {"watch_namespaces": ("shop", "7")},
        {"watch_namespaces": {"shop": 1}.keys()},
        {"network_policy": True, "web_namespaces": ["monitoring"], "egress_ports": (3128,)},
        {"operator_name": "team-a.eu"},
        {"operator_name": "x" * 246},
    ],
)
def test_what_can_be_used(given: dict[str, Any]) -> None:
    """Any collection that can be iterated twice is accepted as a list."""
    parse_operator_args(args(**given))


@pytest.mark.usefixtures("loop")
def test_what_is_known_later_may_be_text() -> None:
    """An output is accepted where a string is expected, since its value is known only after the program
    ended.
    """
    parse_operator_args(
        args(environment={"RESYNC_SECONDS": "30", "LOG_LEVEL": pulumi.Output.secret("DEBUG")})
    )


def test_both_forms_of_the_arguments_are_the_same() -> None:
    """A dictionary, in snake or camel case, yields the same arguments as the class."""
    assert {one.name for one in fields(EurekubeOperatorArgs)} == set(EurekubeOperatorArgsDict.__annotations__)
    keys = {one.name for one in fields(EurekaSecretArgs)}
    assert (
        keys
        == set(EurekaSecretArgsDict.__annotations__)
        == {"name", "version", *(f"{one.name}_key" for one in SECRET_ENTRIES)}
    )
    assert {one.name for one in fields(PodTolerationArgs)} == set(PodTolerationArgsDict.__annotations__)
    written: EurekubeOperatorArgsDict = {"eureka_urls": ["http://eureka/eureka"], "replicas": 1}
    assert parse_operator_args(written) == EurekubeOperatorArgs(
        eureka_urls=["http://eureka/eureka"], replicas=1
    )
    others: Any = {"eurekaUrls": ["http://eureka/eureka"], "replicas": 1, "keepCrds": True}
    assert parse_operator_args(others) == parse_operator_args(written)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"replica": 1}, "EurekubeOperator: there is no argument 'replica'; replicas is one"),
        ({}, "EurekubeOperator: eureka_urls is required"),
        ({"eureka_urls": []}, "EurekubeOperator: eureka_urls needs at least one"),
        (
            "http://eureka/eureka",
            "EurekubeOperator: the arguments must be EurekubeOperatorArgs or a dictionary",
        ),
    ],
)
def test_a_dictionary_that_cannot_be_used_is_refused(given: Any, sentence: str) -> None:
    """Wrong values are refused as in the class, unknown or missing keys as well."""
    with pytest.raises(ProgramError) as refused:
        parse_operator_args(given)
    assert sentence in str(refused.value)


def test_targets_may_be_written_in_every_way() -> None:
    """A class, the keys of the operator's file, and camel case yield the same file."""
    file = {"kind": "webhook", "namespaces": ["shop"], "url": "https://ci/hook", "secret-file": "/etc/x"}
    ways: list[Any] = [
        file,
        {"kind": "webhook", "namespaces": ["shop"], "url": "https://ci/hook", "secretFile": "/etc/x"},
        TargetArgs(kind="webhook", namespaces=["shop"], url="https://ci/hook", secret_file="/etc/x"),
    ]
    for way in ways:
        assert args(targets={"ci": way}).config_file_content == {"targets": {"ci": file}}


def test_a_target_has_every_key_of_the_operators_file() -> None:
    """TargetArgs, from which other languages' types are made, has exactly the keys that the operator
    reads.
    """
    known = {option.name for option in COMMON_TARGET_OPTIONS} | {
        option.name for options in OPTIONS_BY_TARGET_KIND.values() for option in options
    }
    assert {one.name.replace("_", "-") for one in fields(TargetArgs)} == known


def test_where_pods_run_and_what_is_written_on_them() -> None:
    """Scheduling fields, annotations and labels reach the pod template; the labels of the selector stay."""
    given = args(
        image_pull_secrets=["registry"],
        node_selector={"disk": "ssd"},
        tolerations=[
            {"key": "dedicated", "operator": "Exists", "tolerationSeconds": 30},
            PodTolerationArgs(effect="NoSchedule"),
        ],
        priority_class_name="high",
        pod_annotations={"note": "mine", "prometheus.io/port": "9090"},
        pod_labels={"team": "stars"},
        eureka_secret={"name": "vault", "token_key": "token", "version": "41"},
    )
    template: Any = operator_deployment_spec("eurekube", given).template
    pod, metadata = template.spec, template.metadata
    assert [each.name for each in pod.image_pull_secrets] == ["registry"]
    assert (pod.node_selector, pod.priority_class_name) == ({"disk": "ssd"}, "high")
    assert [(each.key, each.effect, each.toleration_seconds) for each in pod.tolerations] == [
        ("dedicated", None, 30),
        (None, "NoSchedule", None),
    ]
    assert metadata.labels == {**operator_selector("eurekube"), "team": "stars"}
    assert metadata.annotations == {
        "note": "mine",
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "9090",
        "prometheus.io/path": "/metrics",
        "eurekube.io/eureka-secret-version": "41",
    }
    template = operator_deployment_spec("eurekube", args()).template
    nothing = template.spec
    assert (nothing.image_pull_secrets, nothing.node_selector, nothing.tolerations) == (None, None, None)


PROGRAM = """
import asyncio, contextvars, json
import pulumi
from pulumi.runtime import mocks
from pulumi.runtime.stack import run_pulumi_func
from eurekube_provider import EurekubeOperator

found = {}

class Echo(mocks.Mocks):
    def call(self, args):
        return {}
    def new_resource(self, args):
        return args.name, args.inputs

class Monitor(mocks.MockMonitor):
    def RegisterResource(self, request):
        if ":CustomResourceDefinition" in request.type:
            former = [alias.spec.name for alias in request.aliases if alias.spec.name]
            found.setdefault(request.name, []).append(former)
        return super().RegisterResource(request)

class Cluster(pulumi.ComponentResource):
    def __init__(self, name):
        super().__init__("own:index:Cluster", name)

def operator(name, parent=None, **more):
    args = {"eureka_urls": ["http://eureka/eureka"], "namespace": name, **more}
    EurekubeOperator(name, args, pulumi.ResourceOptions(parent=parent))

def program():
    for name in ("one", "two"):
        operator(name)
        operator(f"inner-{name}", Cluster(name))
        operator(f"owner-{name}", keep_crds=False)

def run():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    mocks.set_mocks(Echo(), project="shop", stack="dev", monitor=Monitor(Echo()))
    loop.run_until_complete(run_pulumi_func(program))

for _ in range(2):
    contextvars.Context().run(run)
print(json.dumps(found))
"""
"""A program with six operators, run twice in one process as inline programs are."""


def test_each_component_has_crds_of_its_own() -> None:
    """A CRD's resource is named after its component, and has an alias for the name it had in states of 0.1.0.

    The engine accepts such an alias once. The first component that keeps its CRDs gets it, so that a wrong
    guess changes nothing; of components that do not keep theirs, the engine refuses a second one.
    """
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    ).stdout
    expected: dict[str, list[list[str]]] = {}
    for crd in (document["metadata"]["name"] for document in crd_documents()):
        for name in ("one", "inner-one", "owner-one", "owner-two"):
            expected[f"{name}-{crd}"] = [[crd]] * 2
        for name in ("two", "inner-two"):
            expected[f"{name}-{crd}"] = [[]] * 2
    assert json.loads(output) == expected

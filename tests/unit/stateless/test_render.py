"""``eurekube render`` without a Pulumi engine: complete, deterministic output, and clear errors."""

from __future__ import annotations

import base64
import binascii
import functools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

import eurekube_provider
from eurekube_provider.cli.main import main
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.operator.settings import load_settings
from eurekube_provider.operator.triggers.targets import PulumiStack, Target
from eurekube_provider.resources.files import YamlLoader, crd_documents
from eurekube_provider.stateless.project import Project

ROOT = Path(eurekube_provider.__file__).parents[1]

read_all = functools.partial(yaml.load_all, Loader=YamlLoader)
"""Parse all documents of a text, with libyaml for speed."""


@dataclass(frozen=True)
class Done:
    """A command's output and exit code."""

    returncode: int
    stdout: str
    stderr: str


_processes = multiprocessing.get_context("forkserver")
# Loading what the program needs takes seconds; each process begins with it.
_PROGRAM = ("application", "exports", "instance", "operator_component.component", "program", "stack_settings")
_processes.set_forkserver_preload(
    [
        "eurekube_provider.cli.render_command",
        *(f"eurekube_provider.resources.{name}" for name in (*_PROGRAM, "syncer_component")),
    ]
)


def run(*arguments: str, **environment: str) -> Done:
    """Run ``eurekube`` in a process of its own, because the Pulumi SDK keeps settings for a whole process."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("EUREKA_")}
    with TemporaryDirectory() as directory:
        files = [Path(directory) / name for name in ("stdout", "stderr")]
        process = _processes.Process(target=_main, args=(arguments, {**clean, **environment}, *files))
        process.start()
        process.join(60)
        assert process.exitcode is not None, f"{arguments}: still running after a minute"
        return Done(process.exitcode, *(file.read_text() for file in files))


def _main(arguments: tuple[str, ...], environment: dict[str, str], stdout: Path, stderr: Path) -> None:
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    with stdout.open("w") as output, stderr.open("w") as errors:
        sys.stdout, sys.stderr = output, errors
        try:
            code = main(list(arguments))
        except SystemExit as ended:
            code = int(ended.code or 0)
        output.flush()
        errors.flush()
    os._exit(code)


@functools.cache
def rendered(*config: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the objects and registrations of the dev stack with these settings."""
    options = [word for text in config for word in ("--config", text)]
    done = run("render", "--show-secrets", *options)
    assert done.returncode == 0, done.stderr
    *objects, registrations = read_all(done.stdout)
    return objects, registrations


def only(kind: str, *config: str, namespace: str | None = None) -> dict[str, Any]:
    """Return the only object of a kind, in the cluster or in a namespace, without the roles for people."""
    (item,) = [
        item
        for item in rendered(*config)[0]
        if item["kind"] == kind
        and namespace in (None, item["metadata"].get("namespace"))
        and "aggregate-to" not in str(item["metadata"].get("labels"))
    ]
    return item


def rules(kind: str, *config: str, namespace: str | None = None) -> set[tuple[str, str, str, str]]:
    """Return the rights that a role gives as tuples of group, resource, name and verb."""
    return {
        (group, resource, name, verb)
        for rule in only(kind, *config, namespace=namespace)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def test_rendering_is_the_same_byte_for_byte() -> None:
    """Two processes with different hash seeds render the same text, so that reviews can compare it."""
    text = run("render").stdout
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"  # that of the other process is drawn
    command = [sys.executable, "-m", "eurekube_provider.cli.main", "render"]
    again = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert again.stdout == text
    assert len(text) > 1000


def test_what_others_need_comes_first_and_syncers_last() -> None:
    """Objects are rendered in an order in which kubectl can apply them at once."""
    kinds = [item["kind"] for item in rendered()[0]]
    assert kinds == [
        "CustomResourceDefinition",
        "CustomResourceDefinition",
        "CustomResourceDefinition",
        "Namespace",
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRole",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Service",
        "Deployment",
        "EurekaSyncer",
    ]


def test_the_crd_arrives_as_it_is_written() -> None:
    """The rendered CRDs equal the package's files, although they pass through Pulumi's classes."""
    found = [item for item in rendered()[0] if item["kind"] == "CustomResourceDefinition"]
    assert crd_documents() == found


def test_every_object_carries_the_stacks_label_but_the_crd() -> None:
    """Every object except CRDs has the stack's label; CRDs stay when the stack is removed."""
    labels = {
        (item["kind"], item["metadata"].get("labels", {}).get("eurekube.io/stack")) for item in rendered()[0]
    }
    assert {label for kind, label in labels if kind != "CustomResourceDefinition"} == {"eurekube.dev"}
    assert ("CustomResourceDefinition", None) in labels


def test_the_operator_may_do_what_it_does_and_no_more() -> None:
    """The operator's roles give exactly the needed rights: no Secrets, and writes only to finalizers, our
    statuses,
    Events and the Lease.
    """
    namespaced = {
        *(("", "services", "", verb) for verb in ("list", "watch")),
        *(("discovery.k8s.io", "endpointslices", "", verb) for verb in ("list", "watch")),
        *(("", "pods", "", verb) for verb in ("list", "watch")),
        ("events.k8s.io", "events", "", "create"),
    }
    identity = {
        ("", "namespaces", "kube-system", "get"),
        *(("eurekube.io", "eurekasyncers", "", verb) for verb in ("get", "list", "watch", "patch")),
        ("eurekube.io", "eurekasyncers/status", "", "patch"),
        *(("eurekube.io", "eurekasyncers", "", verb) for verb in ("create", "delete")),
        *(("eurekube.io", "stackrefreshes", "", verb) for verb in ("get", "list", "watch", "patch")),
        ("eurekube.io", "stackrefreshes/status", "", "patch"),
        *(("", "nodes", "", verb) for verb in ("list", "watch")),
    }
    election = {
        *(("coordination.k8s.io", "leases", "eurekube-leader", verb) for verb in ("get", "update", "watch")),
        ("coordination.k8s.io", "leases", "", "create"),
    }
    watching = 'eurekube:operator={"watchNamespaces":["shop"],"replicas":0}'
    assert rules("ClusterRole") == namespaced | identity
    assert rules("ClusterRole", watching) == identity
    assert rules("Role", watching, namespace="shop") == namespaced
    for config, where in (([], "eurekube-system"), ([watching], "eurekube-system"), ([watching], "shop")):
        binding = only("RoleBinding", *config, namespace=where)
        assert binding["roleRef"]["name"] == only("Role", *config, namespace=where)["metadata"]["name"]
    assert rules("Role") == rules("Role", watching, namespace="eurekube-system") == election


def test_the_operators_pod_is_restricted() -> None:
    """The operator's pod meets the restricted Pod Security Standard that its namespace enforces."""
    pod = only("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["image"].endswith(f":{eurekube_provider.__version__}")


def test_a_namespace_that_is_there_is_not_made() -> None:
    """With ``createNamespace: false`` the namespace is not rendered, but its objects are."""
    objects = rendered('eurekube:operator={"createNamespace": false}')[0]
    assert "eurekube-system" not in {
        item["metadata"]["name"] for item in objects if item["kind"] == "Namespace"
    }
    assert "eurekube-system" in {item["metadata"].get("namespace") for item in objects}


def test_targets_come_with_their_file_and_their_rights(tmp_path: Path) -> None:
    """The stack's targets are rendered as the operator's configuration file, and give it rights on a named
    Stack in this Stack's namespace.
    """
    target = {"kind": "pulumiStack", "namespaces": ["shop"], "stack": "pulumi/shop-prod"}
    said = f"eurekube:operator={json.dumps({'replicas': 1, 'targets': {'prod': target}})}"
    file = tmp_path / "operator.yaml"
    file.write_text(only("ConfigMap", said)["data"]["operator.yaml"])
    read = load_settings({"config": str(file)}, {"EUREKA_URL": "http://eureka/eureka"})
    assert read.targets == {"prod": Target("prod", PulumiStack("pulumi", "shop-prod"), frozenset({"shop"}))}
    template = only("Deployment", said)["spec"]["template"]
    assert template["metadata"]["annotations"]["eurekube.io/targets-checksum"]
    (container,) = template["spec"]["containers"]
    (mount,), (volume,) = container["volumeMounts"], template["spec"]["volumes"]
    assert {"name": "CONFIG", "value": f"{mount['mountPath']}/operator.yaml"} in container["env"]
    assert volume["projected"]["sources"] == [{"configMap": {"name": "eurekube-operator-targets"}}]
    assert rules("Role", said, namespace="pulumi") == {
        ("pulumi.com", "stacks", "shop-prod", verb) for verb in ("get", "patch")
    }
    assert only("RoleBinding", said, namespace="pulumi")["subjects"][0]["name"] == "eurekube-operator"


def test_three_replicas_share_the_work() -> None:
    """Three replicas are spread over nodes and zones, at most one is away at a time, and each knows its
    pod's name.
    """
    many = 'eurekube:operator={"namespace":"ops"}'
    deployment, budget = only("Deployment", many), only("PodDisruptionBudget", many)
    spec = deployment["spec"]
    assert spec["replicas"] == 3
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert budget["spec"] == {"maxUnavailable": 1, "selector": spec["selector"]}
    assert budget["metadata"]["namespace"] == "ops"
    pod = spec["template"]["spec"]
    assert pod["topologySpreadConstraints"] == [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": spec["selector"],
        }
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    ]
    variables = {entry["name"]: entry for entry in pod["containers"][0]["env"]}
    for name, path in (("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace")):
        assert variables[name]["valueFrom"]["fieldRef"]["fieldPath"] == path
    assert variables["LEASE_NAME"]["value"] == "eurekube-leader"


def test_one_replica_may_be_moved_at_any_time() -> None:
    """A single replica has no PodDisruptionBudget, which would block the drain of its node."""
    kinds = {item["kind"] for item in rendered('eurekube:operator={"replicas":1}')[0]}
    assert "PodDisruptionBudget" not in kinds


def test_the_operators_web_is_probed_scraped_and_reachable() -> None:
    """Probes, Service and scrape annotations all name the port on which the operator listens."""
    template, service = only("Deployment")["spec"]["template"], only("Service")
    (container,) = template["spec"]["containers"]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert container["ports"] == [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]
    assert variables["WEB_ADDRESS"] == ":8080"
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert template["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "8080",
        "prometheus.io/path": "/metrics",
    }
    (port,) = service["spec"]["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == ("http", 8080, "http")
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()


EVERYTHING = (
    "eurekube:url=http://eureka-1:8761/eureka,https://eureka-2/eureka",
    (
        'eurekube:operator={"namespace":"ops","networkPolicy":true,"webNamespaces":["monitoring"],'
        '"egressPorts":[3128],"serviceMonitor":true,"prometheusRule":true,'
        '"monitoringLabels":{"release":"stack"}}'
    ),
)


def test_a_network_policy_lets_through_what_is_needed() -> None:
    """The NetworkPolicy allows the web port inwards, and DNS, the API, Eureka's and named ports outwards."""
    policy, deployment = (only(kind, *EVERYTHING) for kind in ("NetworkPolicy", "Deployment"))
    spec = policy["spec"]
    assert policy["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    assert spec["podSelector"] == deployment["spec"]["selector"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    (inwards,) = spec["ingress"]
    assert inwards["ports"] == [{"port": "http", "protocol": "TCP"}]
    (caller,) = inwards["from"]
    (expression,) = caller["namespaceSelector"]["matchExpressions"]
    assert expression["values"] == ["monitoring"]
    (outwards,) = spec["egress"]
    assert {(item["protocol"], item["port"]) for item in outwards["ports"]} == {
        ("UDP", 53),
        *(("TCP", port) for port in (53, 443, 3128, 6443, 8761)),
    }


def test_prometheus_knows_whom_to_scrape_and_when_to_alert() -> None:
    """The ServiceMonitor selects the Service, pods are not scraped twice, and alerts cover this operator
    only.
    """
    kinds = ("ServiceMonitor", "PrometheusRule", "Service")
    monitor, rule, service = (only(kind, *EVERYTHING) for kind in kinds)
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == (service["spec"]["ports"][0]["name"], "/metrics")
    assert "annotations" not in only("Deployment", *EVERYTHING)["spec"]["template"]["metadata"]
    assert {item["metadata"]["labels"]["release"] for item in (monitor, rule)} == {"stack"}
    written = yaml.safe_load((ROOT / "examples" / "monitoring" / "rules.yaml").read_text())
    (group,), (source,) = rule["spec"]["groups"], written["spec"]["groups"]
    assert [one["alert"] for one in group["rules"]] == [one["alert"] for one in source["rules"]]
    expressions = {one["alert"]: one["expr"] for one in group["rules"]}
    assert expressions["EurekubeLeaderMissing"] == 'absent(eurekube_leader{namespace="ops"} == 1)'
    assert expressions["EurekubeRenewalsFail"] == (
        'eurekube_renewals_last_minute{namespace="ops"} < 0.85 * eurekube_renewals_expected{namespace="ops"}'
    )


def test_nothing_of_it_unless_it_is_wanted() -> None:
    """By default no NetworkPolicy and no object of the Prometheus Operator is rendered."""
    kinds = {item["kind"] for item in rendered()[0]}
    assert kinds.isdisjoint({"NetworkPolicy", "ServiceMonitor", "PrometheusRule"})


def test_credentials_are_in_a_secret_and_nowhere_else() -> None:
    """Credentials, also those from the URL, are rendered into the Secret only."""
    url = "eurekube:url=http://bridge:s3cret@eureka:8761/eureka"
    objects, registrations = rendered(url)
    secret = only("Secret", url)
    assert secret["stringData"] == {"user": "bridge", "password": "s3cret"}
    others = [item for item in objects if item["kind"] != "Secret"]
    assert "s3cret" not in json.dumps([others, registrations])
    (container,) = only("Deployment", url)["spec"]["template"]["spec"]["containers"]
    variables = {entry["name"]: entry for entry in container["env"]}
    assert variables["EUREKA_URL"]["value"] == "http://eureka:8761/eureka"
    assert variables["EUREKA_PASSWORD"]["valueFrom"]["secretKeyRef"]["key"] == "password"


def files(pod: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return Secret and key of each file in the operator's container, by the variable that names the file."""
    (container,) = pod["containers"]
    (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
    assert mount["name"] == volume["name"]
    placed = {
        f"{mount['mountPath']}/{item['path']}": (source["secret"]["name"], item["key"])
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    return {
        entry["name"]: placed[entry["value"]]
        for entry in container["env"]
        if entry.get("value", "").startswith(mount["mountPath"])
    }


def test_authorities_and_certificates_are_files_of_the_secret(tmp_path: Path) -> None:
    """The stack's CA file, client certificate and key become files of the operator's Secret."""
    config = []
    for name in ("caFile", "clientCertificate", "clientKey"):
        (tmp_path / name).write_text(f"the {name}")
        config.append(f"eurekube:{name}={tmp_path / name}")
    own = "eurekube-operator-eureka"
    texts = {"ca.crt": "the caFile", "tls.crt": "the clientCertificate", "tls.key": "the clientKey"}
    assert only("Secret", *config)["stringData"] == texts
    assert files(only("Deployment", *config)["spec"]["template"]["spec"]) == {
        "EUREKA_CA_FILE": (own, "ca.crt"),
        "EUREKA_CLIENT_CERTIFICATE": (own, "tls.crt"),
        "EUREKA_CLIENT_KEY": (own, "tls.key"),
    }


def test_a_secret_of_somebody_else_is_taken_instead(tmp_path: Path) -> None:
    """With a foreign ``eurekaSecret`` the stack's credentials are not rendered; a CA file that the Secret
    lacks is added in a Secret of its own.
    """
    keys = {"userKey": "username", "passwordKey": "word", "clientCertificateKey": "both.pem"}
    (tmp_path / "ca").write_text("the authorities")
    config = (
        "eurekube:url=http://bridge:s3cret@eureka:8761/eureka",
        f"eurekube:caFile={tmp_path / 'ca'}",
        f"eurekube:operator={json.dumps({'eurekaSecret': {'name': 'vault', **keys}})}",
    )
    objects, _ = rendered(*config)
    assert "s3cret" not in json.dumps(objects)
    assert only("Secret", *config)["stringData"] == {"ca.crt": "the authorities"}
    pod = only("Deployment", *config)["spec"]["template"]["spec"]
    variables = {entry["name"]: entry for entry in pod["containers"][0]["env"]}
    for name, key in (("EUREKA_USER", "username"), ("EUREKA_PASSWORD", "word")):
        assert variables[name]["valueFrom"]["secretKeyRef"] == {"name": "vault", "key": key}
    assert files(pod) == {
        "EUREKA_CA_FILE": ("eurekube-operator-eureka", "ca.crt"),
        "EUREKA_CLIENT_CERTIFICATE": ("vault", "both.pem"),
    }


def test_no_secret_is_made_where_somebody_else_makes_it_all() -> None:
    """No Secret is rendered if the foreign one has everything, the CA file included."""
    keys = {"tokenKey": "token", "caCertificateKey": "ca.crt"}
    config = (
        "eurekube:caFile=/etc/hostname",
        f"eurekube:operator={json.dumps({'eurekaSecret': {'name': 'vault', **keys}})}",
    )
    assert "Secret" not in {item["kind"] for item in rendered(*config)[0]}
    pod = only("Deployment", *config)["spec"]["template"]["spec"]
    assert files(pod) == {"EUREKA_CA_FILE": ("vault", "ca.crt")}


def test_the_operator_knows_the_stacks_named_connections(tmp_path: Path) -> None:
    """The stack's named connections are rendered for the operator, with credentials in a Secret, because it
    renews registrations there.
    """
    named = {"eu-1": {"url": "http://eu:8761/eureka", "user": "bridge", "password": "s3cret"}}
    config = (f"eurekube:connections={json.dumps(named)}", 'eurekube:operator={"networkPolicy": true}')
    objects = rendered(*config)[0]
    made = {item["kind"]: item for item in objects if item["metadata"]["name"] == "eurekube-operator-targets"}
    assert set(made) == {"ConfigMap", "Secret"}
    text = made["ConfigMap"]["data"]["operator.yaml"]
    assert "s3cret" not in text
    for name, value in made["Secret"]["stringData"].items():
        (tmp_path / name).write_text(value)
    (tmp_path / "operator.yaml").write_text(text.replace("/etc/eurekube-targets", str(tmp_path)))
    pod = only("Deployment", *config)["spec"]["template"]["spec"]
    environment = {item["name"]: item.get("value") for item in pod["containers"][0]["env"]}
    assert environment["CONFIG"] == "/etc/eurekube-targets/operator.yaml"
    assert [kind for one in pod["volumes"][-1]["projected"]["sources"] for kind in one] == [
        "configMap",
        "secret",
    ]
    read = load_settings({"config": str(tmp_path / "operator.yaml")}, {"EUREKA_URL": "http://d/eureka"})
    found = read.connections["eu-1"]
    assert (found.service_urls, found.user, found.password) == (
        ("http://eu:8761/eureka",),
        "bridge",
        "s3cret",
    )
    ports = [
        port["port"] for rule in only("NetworkPolicy", *config)["spec"]["egress"] for port in rule["ports"]
    ]
    assert 8761 in ports


@pytest.mark.parametrize(
    "operator",
    [{"environment": {"CONFIG": "/own/file"}}, {"eurekaSecret": {"name": "vault", "tokenKey": "t"}}],
)
def test_an_operator_with_somebody_elses_file_gets_no_connections(
    operator: dict[str, Any],
) -> None:
    """An operator with its own configuration file or Secret gets none of the stack's named connections."""
    named = {"eu-1": {"url": "http://eu:8761/eureka", "token": "s3cret"}}
    config = (f"eurekube:connections={json.dumps(named)}", f"eurekube:operator={json.dumps(operator)}")
    found = rendered(*config)[0]
    assert [item for item in found if item["metadata"]["name"] == "eurekube-operator-targets"] == []


def test_secrets_are_hidden_unless_asked_for() -> None:
    """Secrets are masked by default, because rendered output ends up in logs."""
    done = run("render", "--kubernetes", EUREKA_USER="bridge", EUREKA_PASSWORD="s3cret")
    assert "'[secret]'" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr


def test_a_masked_secret_cannot_replace_the_one_that_is_there() -> None:
    """A masked Secret is invalid base64, so that a cluster refuses it and the real one stays; a message
    explains this.
    """
    masked = run("render", "--kubernetes", EUREKA_USER="bridge", EUREKA_PASSWORD="s3cret")
    (secret,) = [each for each in read_all(masked.stdout) if each["kind"] == "Secret"]
    assert "stringData" not in secret
    for text in secret["data"].values():
        with pytest.raises(binascii.Error):
            base64.b64decode(text, validate=True)
    assert "Secret eurekube-system/eurekube-operator-eureka" in masked.stderr
    assert "--show-secrets" in masked.stderr
    shown = run("render", "--kubernetes", "--show-secrets", EUREKA_USER="bridge", EUREKA_PASSWORD="s3cret")
    assert (shown.stderr, "stringData" in shown.stdout) == ("", True)


def test_a_password_of_the_command_line_stands_in_no_file() -> None:
    """The advice to use ``--secret`` is not given for a password from the command line."""
    assert "in clear" not in run("render", "--config", "eurekube:password=s3cret").stderr


def test_a_user_is_no_secret_elsewhere() -> None:
    """Only the Secret is masked: other texts that happen to contain the user's name stay."""
    common = {"EUREKA_USER": "eurekube", "EUREKA_PASSWORD": "rating"}
    hidden, shown = (run("render", *more, **common).stdout for more in ((), ("--show-secrets",)))
    both = [list(read_all(text)) for text in (hidden, shown)]
    assert len(both[0]) > 10
    differing = [one for one, other in zip(*both, strict=True) if one != other]
    assert [one["kind"] for one in differing] == ["Secret"]
    assert differing[0]["data"] == {"user": "[secret]", "password": "[secret]"}


PROGRAM = """
import pulumi
import pulumi_kubernetes as kubernetes
from eurekube_provider import EurekaApplication, EurekaInstance, get_endpoints
from hosts import HOST

token = pulumi.Config().require_secret("token")
found = get_endpoints("rating", "shop").ready
EurekaInstance("one", {"application": "a", "host_name": HOST, "port": 1, "metadata": {"token": token}})
EurekaInstance("two", {"application": "c", "host_name": token.apply(lambda it: it.lower()), "port": 1})
members = {each.name: {"host_name": each.address, "metadata": {"token": token}} for each in found}
EurekaApplication("many", {"application": "b", "port": 1, "instances": members})
kubernetes.core.v1.ConfigMap(
    "c",
    metadata={"name": "c", "annotations": {"since": pulumi.Config().require("since")}},
    data={"line": pulumi.Output.concat("token=", token), "plain": "TOPSECRETARY"},
)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project whose program has its own folder, uses a secret and looks up endpoints."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text(PROGRAM)
    (tmp_path / "app" / "hosts.py").write_text('HOST = "192.0.2.1"')
    (tmp_path / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "p", "runtime": "python", "main": "app"}))
    config = "{eurekube:url: http://127.0.0.1:9/eureka, p:since: 2024-05-01, eurekube:kubeconfig: staging}"
    (tmp_path / "Pulumi.dev.yaml").write_text(f"config: {config}")
    return tmp_path


@pytest.fixture
def api() -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield a kubeconfig with a context for an API server of one endpoint, and the server's requests."""
    asked: list[str] = []
    endpoint = {"addresses": ["192.0.2.9"], "targetRef": {"kind": "Pod", "name": "p-1"}}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = json.dumps({"kind": "List", "items": [{"endpoints": [endpoint]}]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    clusters = {"here": server.server_port, "nowhere": 9}
    yield (
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "nowhere",
            "users": [{"name": "me", "user": {}}],
            "clusters": [
                {"name": name, "cluster": {"server": f"http://127.0.0.1:{port}"}}
                for name, port in clusters.items()
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in clusters],
        },
        asked,
    )
    server.shutdown()
    server.server_close()


def test_a_programs_lookups_ask_the_cluster_that_is_named(
    project: Path, api: tuple[dict[str, Any], list[str]]
) -> None:
    """A program's lookups use the kubeconfig of the stack's configuration, relative to the program, or that
    of an option.
    """
    kubeconfig, asked = api
    common = ("--project", str(project), "--config", "p:token=TOPSECRET")
    (project / "app" / "staging").write_text(yaml.safe_dump(kubeconfig))
    done = run("render", "--registrations", *common, "--config", "eurekube:context=here")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["many/p-1"]["host_name"] == "192.0.2.9"
    assert len(asked) == 1
    (project / "app" / "staging").rename(project / "other")
    options = ("--kubeconfig", str(project / "other"), "--context", "here")
    done = run("apply", "--dry-run", *common, *options)
    assert len(asked) > 1, done.stderr


def test_no_secret_of_a_program_is_printed(project: Path, api: tuple[dict[str, Any], list[str]]) -> None:
    """A program's secrets are masked everywhere in the output, unless ``--show-secrets`` is given."""
    (project / "app" / "staging").write_text(yaml.safe_dump({**api[0], "current-context": "here"}))
    common = ("render", "--project", str(project), "--config", "p:token=TOPSECRET")
    done = run(*common)
    assert done.returncode == 0, done.stderr
    assert "TOPSECRET" not in (done.stdout + done.stderr).replace("TOPSECRETARY", "")
    assert "topsecret" not in done.stdout + done.stderr
    objects, registrations = read_all(done.stdout)
    assert objects["data"] == {"line": "[secret]", "plain": "TOPSECRETARY"}
    assert objects["metadata"]["annotations"] == {"since": "2024-05-01 00:00:00 +0000 UTC"}
    assert registrations["one"]["metadata"] == {"token": "[secret]"}
    assert registrations["many/p-1"]["metadata"]["token"] == "[secret]"
    shown = run(*common, "--show-secrets").stdout
    assert shown.replace("TOPSECRETARY", "").count("TOPSECRET") == 3
    assert registrations.keys() == {"one", "two", "many/p-1"}
    assert registrations["two"]["ip_address"] == "[secret]"
    assert registrations["two"]["application"] == "C"


def test_scalars_of_a_stack_are_read_as_pulumi_reads_them(tmp_path: Path) -> None:
    """Scalars of a stack's configuration have the values that Pulumi 3.260 gives a program."""
    (tmp_path / "Pulumi.yaml").write_text("name: p")
    (tmp_path / "Pulumi.dev.yaml").write_text(
        "config: {a: yes, b: 010, c: 1_000, d: '12:30:45', e: 12:30:45, f: 1.50, g: ~, h: true,"
        " i: {on: on, day: 2024-05-01, at: 2024-05-01T10:00:00Z, f: 1e3, g: 0x10, h: 1.0, none: ~},"
        " j: 2024-02-30, k: 0x_}"
    )
    found = Project.load(tmp_path).configuration("dev", {})
    values = {key.removeprefix("p:"): value for key, value in found.items()}
    assert json.loads(values.pop("i")) == {
        "on": "on",
        "day": "2024-05-01 00:00:00 +0000 UTC",
        "at": "2024-05-01 10:00:00 +0000 UTC",
        "f": 1000,
        "g": 16,
        "h": 1,
        "none": None,
    }
    assert values == {
        "a": "yes",
        "b": "8",
        "c": "1000",
        "d": "12:30:45",
        "e": "12:30:45",
        "f": "1.5",
        "g": "",
        "h": "true",
        "j": "2024-02-30",
        "k": "0x_",
    }


def test_registrations_are_checked_and_complete() -> None:
    """Rendered registrations have all defaults."""
    _, registrations = rendered()
    assert list(registrations) == ["billing"]
    expected = {
        "application": "BILLING",
        "instance_id": "billing.dev.eurekube:billing:8080",
        "owner": "stack/organization/eurekube/dev/billing",
        "port": 8080,
        "renewer": "eurekube",
        "metadata": {"managed-by": "legacy"},
    }
    assert expected.items() <= registrations["billing"].items()


def test_syncers_are_written_as_the_stack_says() -> None:
    """A syncer has every field that the configuration sets, and no other."""
    entry = {
        "name": "cart",
        "namespace": "shop",
        "matchLabels": {"team": "cart"},
        "application": "carts",
        "port": 8080,
        "securePort": "https",
        "durationSeconds": 60,
        "metadataFromLabels": ["version"],
        "paused": True,
    }
    assert only("EurekaSyncer", f"eurekube:syncers={json.dumps([entry])}")["spec"] == {
        "mode": "pod",
        "selector": {"matchLabels": {"team": "cart"}},
        "application": "carts",
        "port": 8080,
        "securePort": "https",
        "lease": {"durationSeconds": 60},
        "metadataFromLabels": ["version"],
        "paused": True,
    }


def test_each_part_can_be_had_alone() -> None:
    """``--kubernetes`` renders only the objects, ``--registrations`` only the registrations as JSON."""
    objects = list(read_all(run("render", "--kubernetes").stdout))
    assert (rendered()[0], rendered()[1]) == (
        objects,
        json.loads(run("render", "--registrations").stdout),
    )


@pytest.mark.parametrize("stack", ["staging", "prod"])
def test_the_other_stacks_render_too(stack: str) -> None:
    """The example stacks staging and prod can be rendered."""
    done = run("render", "--stack", stack, EUREKA_PASSWORD="s3cret")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--config", "eurekube:url="], "no Eureka URL is configured"),
        (["--config", "eurekube:url=eureka"], "must look like http://host:8761/eureka"),
        (["--stack", "nowhere"], "there is no stack 'nowhere'"),
        (["--project", "/"], "/Pulumi.yaml cannot be read"),
        (["--config", "eurekube:clusterName=A_B"], "cluster name 'A_B'"),
        (["--config", "eurekube:operator=[]"], "eurekube:operator must be an object"),
        (
            ["--config", 'eurekube:operator={"environment":{"WEB_ADDRESS":""}}'],
            "environment must not set WEB_ADDRESS",
        ),
        (
            ["--config", 'eurekube:operator={"watchNamespaces":"shop"}'],
            "watch_namespaces must be a list, not str: write it as ['shop']",
        ),
        (
            ["--config", 'eurekube:operator={"environment":{"RESYNC_SECONDS":30}}'],
            "environment: RESYNC_SECONDS must be text: put its value in quotes",
        ),
        (["--config", "eurekube:operatorName=Team A"], "operator_name 'Team A' must be lower case letters"),
        (["--config", 'eurekube:operator={"replica":1}'], "no key 'replica'; replicas is one"),
        (["--config", 'eurekube:operator={"replicas":"3"}'], "replicas must be a whole number from 0 on"),
        (
            ["--config", 'eurekube:operator={"eurekaSecret":"vault"}'],
            "eurekube:operator.eurekaSecret must be an object with a name",
        ),
        (
            ["--config", 'eurekube:operator={"eurekaSecret":{"name":"vault","password":"x"}}'],
            "eurekube:operator.eurekaSecret: there is no key 'password'; passwordKey is one",
        ),
        (["--config", 'eurekube:syncers=[{"name":"a","app":"b"}]'], "syncers[0]: namespace is required"),
        (
            ["--config", 'eurekube:registrations=[{"name":"a","application":"a","port":1}]'],
            "hostName is required",
        ),
        (
            ["--config", 'eurekube:syncers=[{"name":"a","namespace":"b"}]'],
            "'a': app, match_labels, service or services must say",
        ),
        (
            ["--config", 'eurekube:syncers=[{"name":"a","namespace":"b","vip":"c"}]'],
            "no key 'vip'; there are",
        ),
        (["--config", 'eurekube:registrations=[{"application":"a"}]'], "must be an object with a name"),
        (
            ["--config", 'eurekube:registrations=[{"name":"a","application":"a","hostName":"h","port":0}]'],
            "the registration 'a' cannot be made: port: 0 must be",
        ),
    ],
)
def test_wrong_input_is_answered_by_one_sentence(arguments: list[str], sentence: str) -> None:
    """Invalid input ends with 1 and one sentence about the fault, without a traceback."""
    done = run("render", *arguments)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_wrong_usage_is_distinguished() -> None:
    """An unknown command, or an option's value of another form, ends with exit code 2."""
    assert [run("rendr").returncode, run("--version").returncode] == [2, 0]
    done = run("render", "--config", "nonsense")
    assert done.returncode == 2
    assert "--config nonsense: must be KEY=VALUE" in done.stderr


def test_a_stacks_secrets_must_be_given_again(tmp_path: Path) -> None:
    """An encrypted value of a stack's file is refused, as only Pulumi can decrypt it, unless an override
    is given.
    """
    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "Pulumi.dev.yaml").write_text(
        "config:\n  eurekube:password:\n    secure: v1:abc\n"
    )
    project = Project.load(tmp_path)
    with pytest.raises(ConfigurationError, match="eurekube:password is a secret"):
        project.configuration("dev", {})
    assert project.configuration("dev", {"password": "x"})["eurekube:password"] == "x"


def test_a_configuration_that_is_no_object_is_named(tmp_path: Path) -> None:
    """A list in place of keys, in either file, is one sentence; so is a stack without a file."""
    (tmp_path / "Pulumi.yaml").write_text("name: p\n")
    project = Project.load(tmp_path)
    with pytest.raises(ConfigurationError, match=r"no stack 'dev': .*Pulumi.dev.yaml .*an empty one will do"):
        project.configuration("dev", {})
    (tmp_path / "Pulumi.dev.yaml").write_text("config: [eurekube:url]\n")
    with pytest.raises(ConfigurationError, match=r"Pulumi.dev.yaml: config must be an object"):
        project.configuration("dev", {})
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {8080: 1}\n")
    assert project.configuration("dev", {}) == {"p:8080": "1"}
    (tmp_path / "Pulumi.yaml").write_text("name: p\nconfig: eurekube\n")
    with pytest.raises(ConfigurationError, match=r"Pulumi.yaml: config must be an object"):
        Project.load(tmp_path)


URL = "http://eureka.example.com:8761/eureka"


def foreign(directory: Path, *resources: str) -> Path:
    """Write a project that uses the package as a library, with the connection ``eu`` beside the default
    one.
    """
    (directory / "Pulumi.yaml").write_text("name: own\nruntime: python\n")
    eu = {"url": f"{URL}-eu", "user": "u", "password": "p"}
    config = {"eurekube:url": URL, "eurekube:connections": {"eu": eu}}
    (directory / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": config}))
    head = "from eurekube_provider import EurekaApplication, EurekaInstance"
    (directory / "__main__.py").write_text("\n".join((head, *resources)))
    return directory


def test_an_application_renders_as_its_registrations(tmp_path: Path) -> None:
    """A EurekaApplication renders as one registration for each instance, with the shared fields and without
    credentials.
    """
    project = foreign(
        tmp_path,
        'EurekaApplication("b", {"application": "many", "port": 80, "metadata": {"tier": "1"}, "instances": {'
        '"2": {"host_name": "h2"}, "1": {"host_name": "h1", "metadata": {"canary": "yes"}}}})',
        'EurekaInstance("a", {"application": "one", "host_name": "h", "port": 80, "connection": "eu"})',
    )
    done = run("render", "--registrations", "--project", str(project))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["a", "b/1", "b/2"]
    assert (found["a"]["connection"], found["a"]["service_url"]) == ("eu", f"{URL}-eu")
    assert {
        "application": "MANY",
        "connection": "default",
        "host_name": "h1",
        "instance_id": "1.b.dev.own:many:80",
        "metadata": {"canary": "yes", "tier": "1"},
        "owner": "stack/organization/own/dev/b",
        "service_url": URL,
    }.items() <= found["b/1"].items()
    assert "password" not in done.stdout


def test_two_operators_bring_the_crds_once(tmp_path: Path) -> None:
    """Two operators of a program render the CRDs once, and their own objects each."""
    project = foreign(
        tmp_path,
        "from eurekube_provider import EurekubeOperator",
        *(
            f'EurekubeOperator("{name}", {{"eureka_urls": ["{URL}"], "namespace": "{name}", "operator_name":'
            f' "{name}"}})'
            for name in ("eu", "us")
        ),
    )
    done = run("render", "--project", str(project), "--config", "connections={}")
    assert done.returncode == 0, done.stderr
    found = [(item["kind"], item["metadata"]["name"]) for item in read_all(done.stdout) if item]
    crds = [("CustomResourceDefinition", crd["metadata"]["name"]) for crd in crd_documents()]
    assert found[: len(crds) + 2] == [*crds, ("Namespace", "eu"), ("Namespace", "us")]
    assert len(set(crds)) == len(crds)
    assert [kind for kind, _ in found].count("Deployment") == 2


@pytest.mark.parametrize(
    ("resource", "sentence"),
    [
        (
            'EurekaApplication("a", {"application": "a", "instances": {"1": {"host_name": "h", "port": 0}}})',
            "the registration 'a' cannot be made: instances.1.port: 0 must be",
        ),
        *(
            (
                f'EurekaApplication("a", {{"application": "a", "port": 80, "instances": {{"1": {member}}}}})',
                f"the registration 'a' cannot be made: instances.1{problem}",
            )
            for member, problem in (
                ("__import__('pulumi').Output.from_input(None)", ".host_name: is required"),
                ("None", ".host_name: is required"),
                ("'h'", ": must be a map with host_name"),
            )
        ),
        (
            'EurekaInstance("a", {"application": "a", "host_name": "h", "port": 80, "connection": "us"})',
            "there is no connection 'us' (there are default, eu)",
        ),
        (
            "\n".join(
                f'EurekaInstance("a", {{"application": "{name}", "host_name": "h", "port": 80}})'
                for name in ("a", "b")
            ),
            "two registrations of the program have the name 'a': rename one of them",
        ),
    ],
)
def test_a_wrong_registration_is_refused(tmp_path: Path, resource: str, sentence: str) -> None:
    """An invalid registration ends with 1 and one sentence; none is silently left out."""
    done = run("render", "--project", str(foreign(tmp_path, resource)))
    assert done.returncode == 1
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1

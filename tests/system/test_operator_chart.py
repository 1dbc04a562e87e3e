"""The operator's chart as helm 3 and 4 render it: its objects equal those of the component and of the
kustomize base.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider import __version__
from eurekube_provider.operator.options import environment_variable_name
from eurekube_provider.operator.settings import ALL_OPTIONS
from eurekube_provider.resources.files import crd_documents
from lab.programs import find_kubectl
from scripts.chart_reference import (
    BASE_FOLDER,
    CRDS_FOLDER,
    README_FILE,
    SETTINGS_FILE,
    chart_readme,
    read_chart_values,
    render_base_manifest,
)
from scripts.chart_settings import make_chart_rules, settings_text
from tests.system.operator_objects import (
    CHART,
    NAMESPACE,
    ROOT,
    chart_objects,
    chart_text,
    comparable,
    component_objects,
    helm,
    key,
    objects_of,
)

pytestmark = pytest.mark.lab

URLS = ["http://eureka-1:8761/eureka", "zone-b=https://eureka-2/eureka"]
PLAIN = {"eurekaUrls": ["http://eureka:8761/eureka"]}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "defaults": ({}, {}),
    "one replica elsewhere": (
        {"namespace": NAMESPACE, "replicas": 1, "image": "registry:5000/eurekube", "tag": "own"},
        {"replicas": 1, "image": {"repository": "registry:5000/eurekube", "tag": "own"}},
    ),
    "listed namespaces and names": (
        {"watch_namespaces": ["shop", "billing"], "operator_name": "team-a", "cluster_name": "prod"},
        {"watchNamespaces": ["shop", "billing"], "operatorName": "team-a", "clusterName": "prod"},
    ),
    "names of a shared cluster": (
        {
            "reserve": ["payments=billing", "shop=rating*"],
            "publish": ["shop=ratings"],
            "cross_namespace": ["platform=*"],
            "strict_names": True,
        },
        {
            "reserve": ["payments=billing", "shop=rating*"],
            "publish": ["shop=ratings"],
            "crossNamespace": ["platform=*"],
            "strictNames": True,
        },
    ),
    "mirrors": (
        {"mirrors": True, "mirror_cidrs": ["10.20.0.0/16"], "cluster_cidrs": ["10.42.0.0/16"]},
        {"mirrors": True, "mirrorCidrs": ["10.20.0.0/16"], "clusterCidrs": ["10.42.0.0/16"]},
    ),
    "mirrors of listed namespaces": (
        {"mirrors": True, "mirror_cidrs": ["10.20.0.0/16"], "watch_namespaces": ["shop"]},
        {"mirrors": True, "mirrorCidrs": ["10.20.0.0/16"], "watchNamespaces": ["shop"]},
    ),
    "hosts of Ingresses": ({"advertise_from": ["Ingress"]}, {"advertiseFrom": ["Ingress"]}),
    "hosts of Ingresses and Gateways in listed namespaces": (
        {"advertise_from": ["Ingress", "Gateway"], "watch_namespaces": ["shop"]},
        {"advertiseFrom": ["Ingress", "Gateway"], "watchNamespaces": ["shop"]},
    ),
    "readiness gates of listed namespaces": ({"gate_namespaces": ["shop"]}, {"gateNamespaces": ["shop"]}),
    "readiness gates everywhere": ({"gate_namespaces": ["*"]}, {"gateNamespaces": ["*"]}),
    "readiness gates of what is watched": (
        {"gate_namespaces": ["*"], "watch_namespaces": ["shop"]},
        {"gateNamespaces": ["*"], "watchNamespaces": ["shop"]},
    ),
    "none of the roles for people": ({"user_roles": False}, {"userRoles": False}),
    "pods": (
        {
            "image_pull_secrets": ["registry"],
            "node_selector": {"pool": "system"},
            "tolerations": [{"key": "dedicated", "operator": "Exists", "toleration_seconds": 30}],
            "priority_class_name": "system-cluster-critical",
            "pod_annotations": {"a": "1", "prometheus.io/port": "1"},
            "pod_labels": {"b": "2"},
            "deployment_annotations": {"c": "3"},
            "deployment_labels": {"d": "4"},
            "service_account_annotations": {"e": "5"},
            "service_account_labels": {"f": "6"},
        },
        {
            "imagePullSecrets": ["registry"],
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "dedicated", "operator": "Exists", "tolerationSeconds": 30}],
            "priorityClassName": "system-cluster-critical",
            "podAnnotations": {"a": "1", "prometheus.io/port": "1"},
            "podLabels": {"b": "2"},
            "deploymentAnnotations": {"c": "3"},
            "deploymentLabels": {"d": "4"},
            "serviceAccountAnnotations": {"e": "5"},
            "serviceAccountLabels": {"f": "6"},
        },
    ),
    "own credentials": (
        {
            "user": "me",
            "password": "p",
            "ca_certificate": "PEM",
            "client_certificate": "C",
            "client_key": "K",
        },
        {"user": "me", "password": "p", "caCertificate": "PEM", "clientCertificate": "C", "clientKey": "K"},
    ),
    "a token": ({"token": "t"}, {"token": "t"}),
    "somebody else's Secret": (
        {
            "ca_certificate": "PEM",
            "eureka_secret": {
                "name": "bridge",
                "user_key": "u",
                "password_key": "p",
                "client_certificate_key": "c",
            },
        },
        {
            "caCertificate": "PEM",
            "eurekaSecret": {
                "name": "bridge",
                "userKey": "u",
                "passwordKey": "p",
                "clientCertificateKey": "c",
            },
        },
    ),
    "several Eurekas": (
        {
            "connections": {
                "eu": {"urls": URLS, "user": "me", "password": "p", "ca_certificate": "PEM", "mode": "rest"},
                "us": {
                    "urls": ["z=http://us:8080/eureka"],
                    "token": "t",
                    "proxy": "http://proxy:3128",
                    "zone": "z",
                },
            },
            "network_policy": True,
        },
        {
            "connections": {
                "eu": {"urls": URLS, "user": "me", "password": "p", "caCertificate": "PEM", "mode": "rest"},
                "us": {
                    "urls": ["z=http://us:8080/eureka"],
                    "token": "t",
                    "proxy": "http://proxy:3128",
                    "zone": "z",
                },
            },
            "networkPolicy": True,
        },
    ),
    "targets": (
        {
            "targets": {
                "prod": {"kind": "pulumiStack", "stack": "infra/prod", "namespaces": ["shop"]},
                "ci": {
                    "kind": "webhook",
                    "url": "https://ci/hook",
                    "namespaces": ["shop"],
                    "secret-file": "/etc/eurekube-targets/key",
                },
            },
            "target_secrets": {"key": "s"},
        },
        {
            "targets": {
                "prod": {"kind": "pulumiStack", "stack": "infra/prod", "namespaces": ["shop"]},
                "ci": {
                    "kind": "webhook",
                    "url": "https://ci/hook",
                    "namespaces": ["shop"],
                    "secret-file": "/etc/eurekube-targets/key",
                },
            },
            "targetSecrets": {"key": "s"},
        },
    ),
    "network and monitoring": (
        {
            "network_policy": True,
            "web_namespaces": ["monitoring"],
            "egress_ports": [3128, 8443],
            "egress_cidrs": ["192.0.2.0/24", "2001:db8::/32"],
            "service_monitor": True,
            "prometheus_rule": True,
            "monitoring_labels": {"release": "prometheus"},
        },
        {
            "networkPolicy": True,
            "webNamespaces": ["monitoring"],
            "egressPorts": [3128, 8443],
            "egressCidrs": ["192.0.2.0/24", "2001:db8::/32"],
            "serviceMonitor": True,
            "prometheusRule": True,
            "monitoringLabels": {"release": "prometheus"},
        },
    ),
    "settings and resources": (
        {
            "environment": {"LOG_LEVEL": "DEBUG", "RESYNC_SECONDS": "30"},
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}},
        },
        {
            "environment": {"LOG_LEVEL": "DEBUG", "RESYNC_SECONDS": "30"},
            "resources": {"requests": {"cpu": "1", "memory": None}, "limits": {"cpu": "2", "memory": "1Gi"}},
        },
    ),
}


@pytest.fixture(scope="module")
def components() -> dict[str, list[dict[str, Any]]]:
    """Return the component's objects for each case."""
    urls = {"eureka_urls": ["http://eureka:8761/eureka"]}
    return dict(zip(CASES, component_objects({**urls, **given} for given, _ in CASES.values()), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_chart_and_component_make_the_same_objects(
    case: str, components: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """The objects are equal in every field."""
    by_chart = comparable(chart_objects({**PLAIN, **CASES[case][1]}, tmp_path))
    by_component = comparable(components[case])
    assert sorted(by_chart) == sorted(by_component)
    for each, expected in by_component.items():
        assert by_chart[each] == expected, each


def test_the_base_is_the_chart_with_its_defaults(tmp_path: Path) -> None:
    """The kustomize base, with its namespace, equals the chart with default values; it has no helm hooks,
    since kubectl would not run them.
    """
    kubectl = find_kubectl()
    assert kubectl is not None
    done = subprocess.run([kubectl, "kustomize", BASE_FOLDER], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    base = objects_of(done.stdout)
    assert comparable(base) == comparable(chart_objects({**PLAIN, "uninstallGuard": False}, tmp_path))
    (namespace,) = [item for item in base if item["kind"] == "Namespace"]
    assert namespace["metadata"]["name"] == NAMESPACE
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize(
    ("component", "env", "values"),
    [
        (
            "mirrors",
            [{"name": "MIRROR_CIDRS", "value": "10.20.0.0/16"}],
            {"mirrors": True, "mirrorCidrs": ["10.20.0.0/16"]},
        ),
        ("advertise-from", [], {"advertiseFrom": ["Ingress", "Gateway"]}),
    ],
)
def test_a_kustomize_component_is_the_chart_with_its_values(
    component: str, env: list[dict[str, str]], values: dict[str, Any], tmp_path: Path
) -> None:
    """Each kustomize component equals the chart with its values; only the order of rights may differ."""
    kubectl = find_kubectl()
    assert kubectl is not None
    containers = {"spec": {"template": {"spec": {"containers": [{"name": "operator", "env": env}]}}}}
    named = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "eurekube-operator"}}
    overlay = {
        "resources": [os.path.relpath(BASE_FOLDER, tmp_path)],
        "components": [os.path.relpath(BASE_FOLDER.parent / component, tmp_path)],
        "patches": [{"target": {"kind": "Deployment"}, "patch": json.dumps({**named, **containers})}],
    }
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))
    done = subprocess.run([kubectl, "kustomize", tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    by_chart = chart_objects({**PLAIN, "uninstallGuard": False, **values}, tmp_path)
    made, expected = (comparable(items) for items in (objects_of(done.stdout), by_chart))
    for items in (made, expected):
        for item in items.values():
            item.get("rules", []).sort(key=json.dumps)
    assert made == expected


def test_what_is_generated_is_current() -> None:
    """The base, its CRDs, the chart's README and its rules for settings are up to date; `make chart`
    writes them.
    """
    assert (BASE_FOLDER / "operator.yaml").read_text() == render_base_manifest()
    assert {file.name: file.read_text() for file in CRDS_FOLDER.glob("*.io.yaml")} == {
        file.name: file.read_text() for file in (ROOT / "crds").glob("*.yaml")
    }
    assert README_FILE.read_text() == chart_readme()
    assert SETTINGS_FILE.read_text() == settings_text()


@pytest.mark.parametrize("case", CASES)
def test_helm_4_renders_the_same(case: str, tmp_path: Path) -> None:
    """Helm 3 and helm 4 render the same objects in the same order; only white space differs."""
    values = {**PLAIN, **CASES[case][1], "dashboard": True}
    assert chart_objects(values, tmp_path, 4) == chart_objects(values, tmp_path, 3)


@pytest.mark.parametrize("version", [3, 4])
def test_helm_lint_is_content(version: int) -> None:
    """`helm lint --strict` accepts the chart with its required values."""
    output = helm("lint", "--strict", str(CHART), "--set", "eurekaUrls={http://e/eureka}", version=version)
    assert "0 chart(s) failed" in output


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"eurekaUrls": []}, "eurekaUrls needs at least one service URL"),
        ({"eurekaUrls": "http://e/eureka"}, "eurekaUrls"),
        ({"eurekaUrls": ["http://me:s3cret@e/eureka"]}, "must not carry credentials"),
        ({"replicas": -1}, "replicas"),
        ({"replica": 1}, "replica"),
        ({"password": "s3cret"}, "password means nothing without a user"),
        ({"user": "me", "token": "s3cret"}, "or a bearer token, not both"),
        ({"clientKey": "s3cret"}, "clientKey means nothing without its certificate"),
        ({"eurekaSecret": {"name": "a"}}, "say under which keys"),
        (
            {"eurekaSecret": {"name": "eurekube-operator-eureka", "tokenKey": "t"}},
            "call the other one otherwise",
        ),
        ({"token": "s3cret", "eurekaSecret": {"name": "a", "tokenKey": "t"}}, "EUREKA_TOKEN is given twice"),
        ({"environment": {"WEB_ADDRESS": ""}}, "environment must not set WEB_ADDRESS"),
        ({"environment": {"ADVERTISE_FROM": "Ingress"}}, "environment must not set ADVERTISE_FROM"),
        ({"advertiseFrom": ["NodePort"]}, "advertiseFrom"),
        ({"environment": {"EUREKA_TOKEN": "s3cret"}}, "would stand in clear"),
        ({"environment": {"RESYNC_SECONDS": 30}}, "RESYNC_SECONDS"),
        ({"extraEnv": [{"name": "WEB_ADDRESS", "value": ":9090"}]}, "extraEnv must not set WEB_ADDRESS"),
        ({"extraArgs": ["--web-address=:9090"]}, "extraArgs must not set --web-address"),
        ({"networkPolicy": True, "egressCidrs": ["192.0.2.1"]}, 'egressCidrs: "192.0.2.1" must be'),
        ({"egressCidrs": ["192.0.2.0/24"]}, "mean nothing without networkPolicy"),
        ({"connections": {"default": {"urls": ["http://a/e"]}}}, "connections: default is what eurekaUrls"),
        ({"connections": {"eu": {"urls": ["http://a/e"], "mode": "fast"}}}, "mode"),
        ({"connections": {"eu": {"urls": ["http://u:s3cret@a/e"]}}}, "no URL may carry credentials"),
        ({"egressPorts": [8080]}, "mean nothing without networkPolicy"),
        ({"reserve": ["billing"]}, "reserve"),
        ({"publish": ["shop=a;b"]}, "publish"),
        ({"reserve": ["a=b"], "environment": {"RESERVE": "a=c"}}, "must not set RESERVE: reserve says it"),
        (
            {"strictNames": True, "environment": {"STRICT_NAMES": "false"}},
            "must not set STRICT_NAMES: strictNames says it",
        ),
        ({"targetSecrets": {"key": "s3cret"}}, "targetSecrets means nothing without targets"),
        ({"targets": {"prod": {"kind": "pulumiStack", "stack": "prod"}}}, "stack"),
        ({"podLabels": {"app.kubernetes.io/name": "x"}}, "by which the chart's objects are found"),
        (
            {"extraObjects": [{"apiVersion": "eurekube.io/v1alpha1", "kind": "EurekaSyncer"}]},
            "extraObjects must not have a EurekaSyncer or EurekaMirror",
        ),
    ],
)
def test_values_that_cannot_be_used(given: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    """Helm refuses a wrong value before it makes anything, in a sentence without a credential."""
    said = chart_text({**PLAIN, **given}, tmp_path, fails=True)
    assert sentence in said
    if "URL" not in sentence and "eurekaUrls" not in given:
        assert "s3cret" not in said


def test_every_setting_of_the_operator_can_be_given(tmp_path: Path) -> None:
    """Each setting has a value of its own, or can be set by environment or, if it has no variable, by
    extraArgs.
    """
    own = {
        "EUREKA_URL": "eurekaUrls",
        "OPERATOR_NAME": "operatorName",
        "CLUSTER_NAME": "clusterName",
        "WATCH_NAMESPACE": "watchNamespaces",
        "GATE_NAMESPACE": "gateNamespaces",
        "MIRRORS": "mirrors",
        "MIRROR_CIDRS": "mirrorCidrs",
        "ADVERTISE_FROM": "advertiseFrom",
        "CLUSTER_CIDRS": "clusterCidrs",
    }
    fixed = {"WEB_ADDRESS", "LEASE_NAME", "POD_NAME"}
    variables = {
        environment_variable_name(option.name) for option in ALL_OPTIONS if option.has_environment_variable
    }
    assert own.keys() | fixed <= variables
    rest = {name: some_text(name) for name in variables - own.keys() - fixed}
    with_token, with_password = {"EUREKA_TOKEN_FILE"}, {"EUREKA_USER", "EUREKA_PASSWORD_FILE"}
    for one_or_the_other in (with_token, with_password):
        environment = {name: text for name, text in rest.items() if name not in one_or_the_other}
        values = {
            "eurekaUrls": ["1=http://eureka:8761/eureka"],
            "environment": environment,
            "extraArgs": ["--kubeconfig=/etc/kubeconfig"],
        }
        (deployment,) = [item for item in chart_objects(values, tmp_path) if item["kind"] == "Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        env = {item["name"]: item.get("value") for item in container["env"]}
        assert env.items() >= environment.items()
        assert container["args"] == ["--kubeconfig=/etc/kubeconfig"]


def some_text(name: str) -> str:
    """Return a text that is valid for the setting of this variable."""
    pattern = make_chart_rules()["settings"][name].get("pattern", "")
    timing = {"LEASE_DURATION_SECONDS": "16", "RENEW_DEADLINE_SECONDS": "11"}
    return timing.get(name) or next(
        text for text in ("1", "true", "json", "rest", "DEBUG", "a=b") if re.search(pattern, text)
    )


def test_pods_and_objects_take_what_is_theirs(tmp_path: Path) -> None:
    """Values that only the chart has, such as tolerations, labels and extraObjects, reach the objects they
    name.
    """
    values = {
        **PLAIN,
        "imagePullSecrets": ["registry"],
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "topologySpreadConstraints": [],
        "podAnnotations": {"a": "1"},
        "podLabels": {"b": "2"},
        "deploymentAnnotations": {"c": "3"},
        "deploymentLabels": {"d": "4"},
        "serviceAccountAnnotations": {"e": "5"},
        "serviceAccountLabels": {"f": "6"},
        "extraEnv": [{"name": "X", "value": "y"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "extraObjects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-x"}}
        ],
        "image": {"digest": "sha256:" + "0" * 64},
    }
    items = {key(item)[::2]: item for item in chart_objects(values, tmp_path)}
    deployment = items["Deployment", "eurekube-operator"]
    pod = deployment["spec"]["template"]
    spec = pod["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["nodeSelector"] == {"pool": "system"}
    assert spec["tolerations"] == values["tolerations"]
    assert spec["affinity"] == values["affinity"]
    assert spec["priorityClassName"] == "system-cluster-critical"
    assert spec["topologySpreadConstraints"] == []
    assert pod["metadata"]["annotations"]["a"] == "1"
    assert pod["metadata"]["labels"]["b"] == "2"
    assert deployment["metadata"]["annotations"] == {"c": "3"}
    assert deployment["metadata"]["labels"]["d"] == "4"
    account = items["ServiceAccount", "eurekube-operator"]
    assert account["metadata"]["annotations"] == {"e": "5"}
    assert account["metadata"]["labels"]["f"] == "6"
    (container,) = spec["containers"]
    assert {"name": "X", "value": "y"} in container["env"]
    assert spec["volumes"] == values["extraVolumes"]
    assert container["volumeMounts"] == values["extraVolumeMounts"]
    assert container["image"] == "ghcr.io/eurekube/eurekube-operator@sha256:" + "0" * 64
    assert ("ConfigMap", "eurekube-x") in items
    guard = items["Job", "eurekube-uninstall-guard"]["spec"]["template"]
    assert guard["spec"]["imagePullSecrets"] == spec["imagePullSecrets"]
    selector = items["Service", "eurekube-operator"]["spec"]["selector"]
    assert not selector.items() <= guard["metadata"]["labels"].items()
    for each in (spec, guard["spec"]):
        (one,) = each["containers"]
        assert each["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_another_secret_replaces_the_pods(tmp_path: Path) -> None:
    """A changed Secret rolls the pods, an unchanged one does not; the annotation is no hash of the
    password.
    """

    def annotations(**more: Any) -> dict[str, str]:
        items = chart_objects({**PLAIN, **more}, tmp_path)
        (deployment,) = [item for item in items if item["kind"] == "Deployment"]
        found: dict[str, str] = deployment["spec"]["template"]["metadata"]["annotations"]
        return found

    one = annotations(user="me", password="one")
    assert annotations(user="me", password="one") == one
    assert annotations(user="me", password="two") != one
    assert annotations(eurekaSecret={"name": "a", "tokenKey": "t", "version": "1"}) != annotations(
        eurekaSecret={"name": "a", "tokenKey": "t", "version": "2"}
    )


def test_the_crds_are_kept_or_left_out(tmp_path: Path) -> None:
    """The CRDs are rendered by default, equal those of the package, and can be left out."""

    def crds(**given: bool) -> list[dict[str, Any]]:
        items = chart_objects({**PLAIN, "crds": given}, tmp_path)
        return [item for item in items if item["kind"] == "CustomResourceDefinition"]

    assert [item["spec"] for item in crds()] == [document["spec"] for document in crd_documents()]
    kept = [item["metadata"]["annotations"]["helm.sh/resource-policy"] for item in crds()]
    assert kept == ["keep"] * len(crd_documents())
    assert all("annotations" not in item["metadata"] for item in crds(keep=False))
    assert crds(install=False) == []


def test_the_packaged_chart_is_whole(tmp_path: Path) -> None:
    """The packaged chart contains files in place of the repository's links, and has the project's version."""
    helm("package", str(CHART), "--destination", str(tmp_path))
    with tarfile.open(tmp_path / f"eurekube-{__version__}.tgz") as package:
        assert all(member.isfile() for member in package.getmembers())
        names = package.getnames()
        assert "eurekube/files/monitoring/dashboard.json" in names
        assert "eurekube/files/crds/eurekasyncers.eurekube.io.yaml" in names
        chart = yaml.safe_load(package.extractfile("eurekube/Chart.yaml") or b"")
    assert chart["appVersion"] == __version__
    images = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])
    assert images == [
        {"name": "eurekube-operator", "image": f"ghcr.io/eurekube/eurekube-operator:{__version__}"}
    ]
    parsed = yaml.safe_load(chart["annotations"]["artifacthub.io/crds"])
    assert [one["name"] for one in parsed] == [document["metadata"]["name"] for document in crd_documents()]


def test_schema_and_values_name_the_same() -> None:
    """Each value has a schema, and a sentence in the README."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)
    assert [name for name, _, sentence in read_chart_values() if not sentence] == []
    assert {name for name, _, _ in read_chart_values()} == set(values)


def test_the_dashboard_comes_with_the_chart(tmp_path: Path) -> None:
    """The chart can install examples/monitoring/dashboard.json where Grafana's sidecar finds it."""
    items = chart_objects({**PLAIN, "dashboard": True}, tmp_path)
    (config,) = [item for item in items if key(item)[::2] == ("ConfigMap", "eurekube-operator-dashboard")]
    written = (ROOT / "examples" / "monitoring" / "dashboard.json").read_text()
    assert json.loads(config["data"]["eurekube.json"]) == json.loads(written)
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"

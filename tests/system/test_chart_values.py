"""Values of the operator's chart that would end the operator or show a credential, and values that work."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.reservations import Reservations
from eurekube_provider.operator.__main__ import add_flags
from eurekube_provider.operator.settings import Settings, load_settings
from lab.programs import find_kubectl
from scripts.blocks import find_code_blocks
from scripts.release import install_manifest
from tests.system.operator_objects import (
    CHART,
    NAMESPACE,
    RELEASE,
    ROOT,
    Object,
    chart_objects,
    chart_text,
    helm,
    objects_of,
)
from tests.system.test_operator_chart import CASES, PLAIN

pytestmark = pytest.mark.lab

HOOK = {"kind": "webhook", "namespaces": ["shop"], "url": "https://ci.example.com/hook"}
KEY = {"secret-file": "/etc/eurekube-targets/key"}
SECRETS = {"targetSecrets": {"key": "s3cret"}}
STACK = {"kind": "pulumiStack", "namespaces": "*", "stack": "infra/prod"}


def target(**more: Any) -> dict[str, Any]:
    """Return values with a valid webhook target, changed by ``more``; None removes a key."""
    entries = {**HOOK, **KEY, **{key.replace("_", "-"): value for key, value in more.items()}}
    return {**SECRETS, "targets": {"ci": {key: value for key, value in entries.items() if value is not None}}}


def stack(**more: Any) -> dict[str, Any]:
    """Return values with a valid Stack target, changed by ``more``."""
    return {"targets": {"prod": {**STACK, **{key.replace("_", "-"): value for key, value in more.items()}}}}


def connection(**more: Any) -> dict[str, Any]:
    """Return values with a further Eureka connection, changed by ``more``."""
    return {"connections": {"eu": {"urls": ["http://eu:8761/eureka"], **more}}}


def environment(**texts: str) -> dict[str, Any]:
    """Return values that set the operator's environment variables."""
    return {"environment": texts}


ENDING: list[tuple[dict[str, Any], str]] = [
    ({"clusterName": "A B"}, 'clusterName is "A B": it must be lower-case letters, digits and dashes'),
    ({"clusterName": "x" * 41}, "at most 40 characters"),
    *(
        ({"mirrors": True, "mirrorCidrs": [network]}, f'mirrorCidrs: "{network}" must be a network such as')
        for network in (
            "10.20.0.0/99",
            "10.20.0.1/16",
            "10.20.0.256/32",
            "10.20.0/24",
            "2001:db8::/129",
            "2001:db8::1/64",
            "2001:db8:::/32",
            "1:2:3:4:5:6:7:8:9/128",
            "1:2:3/48",
        )
    ),
    (
        {"mirrors": True, "mirrorCidrs": ["10.0.0.0/8"], "clusterCidrs": ["10.42.0.0/15", "10.43.0.0/15"]},
        'clusterCidrs: "10.43.0.0/15"',
    ),
    (environment(LOG_LEVEL="LOUD"), 'environment: LOG_LEVEL is "LOUD": it must be one of DEBUG, INFO'),
    (environment(LOG_FORMAT="xml"), "must be one of auto, json, text"),
    (environment(EUREKA_MODE="fast"), "must be one of auto, rest, batch"),
    (environment(LEADER_ELECT="no"), "must be true or false"),
    (environment(RESYNC_SECONDS="soon"), "must be a number of seconds between 0.1 and 86400"),
    (environment(DRAIN_SECONDS="1.5"), "must be a whole number of seconds"),
    (environment(RESERVE="billing"), 'environment: RESERVE is "billing": it must be NAMESPACE=NAME'),
    (environment(LEASE_NAMESPACE="A"), "must be a Kubernetes object's name"),
    (environment(LEASE_DURATION_SECONDS="0.5"), "LEASE_DURATION_SECONDS must be at least 1"),
    (environment(RENEW_DEADLINE_SECONDS="15"), "RENEW_DEADLINE_SECONDS (15) must be less than"),
    (environment(LEASE_DURATION_SECONDS="9"), "must be less than LEASE_DURATION_SECONDS (9)"),
    (environment(RETRY_PERIOD_SECONDS="9"), "RETRY_PERIOD_SECONDS (9) must be less than"),
    (environment(EUREKA_PROXY="ftp://proxy"), "EUREKA_PROXY must look like"),
    (environment(EUREKA_ZONE="a"), 'EUREKA_ZONE is "a", and no URL of eurekaUrls belongs to that zone'),
    (environment(EUREKA_CLIENT_KEY="/etc/x"), "clientKey means nothing without its certificate"),
    ({**environment(EUREKA_USER="me"), "token": "s3cret"}, "or a bearer token, not both"),
    ({"extraEnv": [{"name": "LOG_LEVEL", "value": "LOUD"}]}, 'extraEnv: LOG_LEVEL is "LOUD"'),
    ({"extraArgs": ["--log-level=LOUD"]}, 'extraArgs: --log-level is "LOUD"'),
    ({"extraArgs": ["--log-level", "LOUD"]}, 'extraArgs: --log-level is "LOUD"'),
    ({"extraArgs": ["--log-level"]}, "extraArgs: --log-level needs a value"),
    ({"extraArgs": ["--loglevel=DEBUG"]}, "extraArgs: the operator has no flag --loglevel"),
    ({"extraArgs": ["DEBUG"]}, "extraArgs: entry 1 belongs to no flag"),
    ({"extraArgs": ["--help"]}, "extraArgs must not have --help"),
    ({"eurekaUrls": ["http://e:8761/eureka?zone=a"]}, "eurekaUrls: entry 1 must look like"),
    ({"eurekaUrls": ["http://e:87610/eureka"]}, "eurekaUrls: entry 1 must look like"),
    ({"eurekaUrls": ["http://e/eureka", "e:8761/eureka"]}, "eurekaUrls: entry 2 must look like"),
    ({"eurekaUrls": ["http://[2001:db8::1::2]:8761/eureka"]}, "eurekaUrls: entry 1 must look like"),
    ({"eurekaUrls": ["http:///eureka"]}, "eurekaUrls: entry 1 must look like"),
    ({"eurekaUrls": ["a:b=http://e/eureka"]}, "eurekaUrls: entry 1 must look like"),
    ({"token": "s3\ncret"}, "the token has signs in it that no header can carry"),
    (connection(urls=["http://eu:x/eureka"]), "connections: eu: entry 1 of urls must look like"),
    (connection(proxy="ftp://proxy"), "connections: eu: the proxy must look like"),
    (connection(zone="a"), 'connections: eu: no URL belongs to the zone "a"'),
    (connection(user="me", password="s3\ncret"), "connections: eu: the password must be one line"),
    (connection(token="s3crét"), "connections: eu: the token has signs in it"),
    (target(namespaces=None), "targets: ci: there is no namespaces: name those that may use it"),
    (target(namespaces=[]), "targets: ci: there is no namespaces"),
    (target(url=None), "targets: ci: give url or, where a part of it is a secret, url-file"),
    (target(url="ci.example.com/hook"), "targets: ci: url must start with http:// or https://"),
    (target(secret_file=None), "the receiver must be able to tell that it was us"),
    (target(secret_file="/etc/eurekube-targets/other"), "add other to targetSecrets"),
    ({**target(), "targetSecrets": {"key": "s3\ncret"}}, "targetSecrets: key must be one line of text"),
    ({**target(), "targetSecrets": {"key": " "}}, "targetSecrets: key must be one line of text"),
    (target(secret="s3cret"), "targets: ci: secret would stand in clear in a ConfigMap"),
    (target(uri="https://ci"), "targets: ci: the kind webhook has no key uri"),
    (target(stack="infra/prod"), "targets: ci: the kind webhook has no key stack"),
    (target(form="xml"), 'targets: ci: form is "xml": it must be one of eurekube, repository-dispatch'),
    (target(timeout_seconds=True), "targets: ci: timeout-seconds must be a number of seconds"),
    (target(timeout_seconds=0), 'targets: ci: timeout-seconds is "0": it must be a number of seconds'),
    (target(actions=["Destroy"]), "must be some of Refresh, Up and Preview"),
    (stack(stack="prod"), "must be NAMESPACE/NAME of a Stack"),
    ({"targets": {"A": STACK}}, "A"),
    ({"targets": {"ci": {"kind": "hook", "namespaces": "*"}}}, "kind"),
    ({"targets": {"ci": {"kind": "automation", "namespaces": "*", "stack": "dev"}}}, "there is no work-dir"),
]
"""Chart values with which the operator would end, and helm's message for each."""

CLEAR: list[tuple[dict[str, Any], str]] = [
    (connection(proxy="http://me:s3cret@proxy:3128"), "connections: eu: the proxy must not carry"),
    (connection(proxy="me:s3cret@proxy:3128"), "connections: eu: the proxy must not carry credentials"),
    (connection(urls=["http://me:s3cr/et@eu/eureka"]), "connections: eu: no URL may carry credentials"),
    ({"eurekaUrls": ["http://me:s3cret @e,u/eureka"]}, "eurekaUrls must not carry credentials"),
    *(
        (environment(**{name: url}), f"environment must not set {name} to a URL with credentials")
        for name, url in (
            ("EUREKA_PROXY", "http://me:s3cret@proxy:3128"),
            ("EUREKA_PROXY", "me:s3cret@proxy:3128"),
            ("HTTPS_PROXY", "http://me:s3cret@proxy:3128"),
            ("http_proxy", "http://me:s3cret@proxy:3128"),
            ("PULUMI_BACKEND_URL", "postgres://me:s3cret@db/pulumi"),
        )
    ),
    (environment(PULUMI_ACCESS_TOKEN="s3cret"), "give it by extraEnv with valueFrom.secretKeyRef"),
    (environment(AWS_SECRET_ACCESS_KEY="s3cret"), "environment must not set AWS_SECRET_ACCESS_KEY"),
    ({"extraEnv": [{"name": "EUREKA_PASSWORD", "value": "s3cret"}]}, "extraEnv must not set EUREKA_PASSWORD"),
    (
        {"extraEnv": [{"name": "HTTP_PROXY", "value": "http://me:s3cret@proxy"}]},
        "extraEnv must not set HTTP_PROXY to a URL with credentials",
    ),
    ({"extraArgs": ["--eureka-proxy=http://me:s3cret@proxy"]}, "extraArgs must not set --eureka-proxy to"),
    (target(url="https://me:s3cret@ci.example.com/hook"), "targets: ci: url must have neither credentials"),
    (target(url="https://ci.example.com/hook?token=s3cret"), "name it with url-file"),
    (target(url="https://ci.example.com/hook#s3cret"), "targets: ci: url must have neither credentials nor"),
    (target(url="ftp://ci.example.com/hook?token=s3cret"), "targets: ci: url must have neither"),
    (target(authorization="Bearer s3cret"), "targets: ci: authorization would stand in clear"),
]
"""Chart values that would put a credential into a ConfigMap or a Deployment, and helm's message for each."""

SERVED: list[dict[str, Any]] = [
    *(given for _, given in CASES.values()),
    {"mirrors": True, "mirrorCidrs": ["0.0.0.0/0", "192.0.2.7/32", "2001:db8::/32", "::/0", "::1/128"]},
    {"mirrors": True, "mirrorCidrs": ["1:2:3:4:5:6:7:8/128", "1:2:3:4:5:6:7::/112", "2001:DB8:8000::/33"]},
    {"eurekaUrls": ["a=http://e-1.example.com:8761/eureka/", "https://[2001:db8::1]:8761/eureka/v2"]},
    {"eurekaUrls": ["a=http://e-1:8761/eureka", "b=http://e-2:8761/eureka"], **environment(EUREKA_ZONE="b")},
    connection(urls=["a=http://e-1:8761/eureka"], zone="a", proxy="proxy:3128"),
    environment(LEASE_DURATION_SECONDS="60", RENEW_DEADLINE_SECONDS="40", RETRY_PERIOD_SECONDS="5.5"),
    environment(RESERVE="*=*,payments=billing", PUBLISH="shop=*", LOG_LEVEL="debug", LOG_FORMAT=""),
    {**environment(EUREKA_USER="me"), "password": "s3cret"},
    {"extraArgs": ["--dry-run", "--log-level", "DEBUG", "--resync-seconds=30"]},
    {"extraEnv": [{"name": "EUREKA_PROXY", "valueFrom": {"secretKeyRef": {"name": "a", "key": "proxy"}}}]},
    target(timeout_seconds=30, actions="up, preview", form="repository-dispatch"),
    {
        "targets": {"ci": {**HOOK, **KEY, "url": None, "url-file": "/etc/eurekube-targets/url"}},
        "targetSecrets": {"key": "s3cret", "url": "https://ci.example.com/hook?token=s3cret"},
    },
    stack(actions=["Up"]),
]
"""Chart values with which the operator starts."""


def settings_of(objects: list[Object], folder: Path) -> Settings:
    """Return the operator's settings as its container would read them, with its files in a folder.

    :raises ConfigurationError: the operator would end because of a setting.
    :raises SystemExit: the operator would end because of an unknown argument.
    """
    found = {(item["kind"], item["metadata"]["name"]): item for item in objects}
    spec = found["Deployment", "eurekube-operator"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
    places = {}
    for mount in container.get("volumeMounts", ()):
        places[mount["mountPath"]] = folder / mount["name"]
        mounted(volumes[mount["name"]], found, folder / mount["name"])
    for file in folder.rglob("operator.yaml"):
        file.write_text(with_local_paths(file.read_text(), places))
    environment = {}
    for variable in container["env"]:
        reference = variable.get("valueFrom", {}).get("secretKeyRef", {})
        own = found.get(("Secret", reference.get("name")), {}).get("stringData", {})
        foreign = "http://me:s3cret@proxy:3128" if variable["name"] == "EUREKA_PROXY" else "x"
        text = variable.get("value", own.get(reference.get("key"), foreign))
        environment[variable["name"]] = with_local_paths(text, places)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser)
    return load_settings(vars(parser.parse_args(container.get("args", []))), environment)


def mounted(volume: Object, found: dict[tuple[str, str], Object], place: Path) -> None:
    """Write the files of a volume into a folder; a file from a Secret that the chart does not make is
    empty.
    """
    place.mkdir(exist_ok=True)
    for source in volume.get("projected", {}).get("sources", [volume]):
        kind = "ConfigMap" if "configMap" in source else "Secret"
        source_name = source["configMap" if kind == "ConfigMap" else "secret"]
        item = found.get((kind, source_name["name"]), {})
        texts = item.get("data") or item.get("stringData") or {}
        paths = {each["key"]: each["path"] for each in source_name.get("items", ())}
        for name, path in (paths or {name: name for name in texts}).items():
            (place / path).write_text(texts.get(name, ""))


def with_local_paths(text: str, places: dict[str, Path]) -> str:
    """Return a text in which the container's file paths are replaced by this test's."""
    for former, place in places.items():
        text = text.replace(f"{former}/", f"{place}/")
    return text


@pytest.fixture(scope="module")
def unchecked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the chart without the schema and templates that refuse values."""
    copy = tmp_path_factory.mktemp("unchecked") / "eurekube"
    shutil.copytree(CHART, copy)
    (copy / "values.schema.json").unlink()
    (copy / "templates" / "validation.yaml").unlink()
    return copy


@pytest.mark.parametrize(("given", "sentence"), ENDING)
def test_what_the_operator_would_end_with_is_refused(
    given: dict[str, Any], sentence: str, unchecked: Path, tmp_path: Path
) -> None:
    """Helm refuses values with which the operator's pod would end, says what is wrong, and shows no
    credential.
    """
    values = {**PLAIN, **given}
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    where = ("template", RELEASE, str(unchecked), "--namespace", NAMESPACE, "--values", str(file))
    with pytest.raises((ConfigurationError, SystemExit)):
        settings_of(objects_of(helm(*where)), tmp_path)
    said = chart_text(values, tmp_path, fails=True)
    assert sentence in said
    assert "s3" not in said


@pytest.mark.parametrize(("given", "sentence"), CLEAR)
def test_credentials_that_would_stand_in_clear_are_refused(
    given: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    """Helm refuses a credential in plain values without showing it, and names the way to keep it in a
    Secret.
    """
    said = chart_text({**PLAIN, **given}, tmp_path, fails=True)
    assert sentence in said
    assert "s3cr" not in said


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("given", SERVED)
def test_the_operator_takes_what_the_chart_takes(given: dict[str, Any], version: int, tmp_path: Path) -> None:
    """The operator starts with valid values, rendered by helm 3 and by helm 4."""
    settings = settings_of(chart_objects({**PLAIN, **given}, tmp_path, version), tmp_path)
    assert settings.operator_name == given.get("operatorName", "eurekube")


def test_the_page_about_another_eureka_gives_the_operator_both(tmp_path: Path) -> None:
    """docs/guides/change-url.md gives the operator its second Eureka by helm values, by kubectl, and by a
    file alone.
    """
    page = ROOT / "docs" / "guides" / "change-url.md"
    values, file, kustomization = (block.text for block in find_code_blocks(page) if block.language == "yaml")
    by_helm = tmp_path / "helm"
    by_helm.mkdir()
    objects = chart_objects({**PLAIN, **yaml.safe_load(values)}, by_helm)
    by_kubectl = tmp_path / "kubectl"
    by_kubectl.mkdir()
    for name, text in (
        ("operator.yaml", file),
        ("kustomization.yaml", kustomization),
        ("install.yaml", install_manifest()),
    ):
        (by_kubectl / name).write_text(text)
    for each in (
        settings_of(objects, by_helm),
        settings_of(objects_of(kustomized(by_kubectl)), tmp_path),
        load_settings({"config": str(by_kubectl / "operator.yaml"), "eureka_url": "http://e/eureka"}, {}),
    ):
        assert each.connections["new"].service_urls == ("https://eureka-new.example.com/eureka",)
        assert set(each.connections) == {"default", "new"}


def test_the_page_about_passwords_names_the_secret_for_helm_and_kubectl(tmp_path: Path) -> None:
    """With docs/guides/security.md the operator's container reads user and password from the Secret that the
    page makes, whoever installed it.
    """
    page = ROOT / "docs" / "guides" / "security.md"
    values, kustomization = (block.text for block in find_code_blocks(page) if block.language == "yaml")
    (tmp_path / "kustomization.yaml").write_text(kustomization)
    (tmp_path / "install.yaml").write_text(install_manifest())
    for objects in (
        chart_objects({**PLAIN, **yaml.safe_load(values)}, tmp_path),
        objects_of(kustomized(tmp_path)),
    ):
        (deployment,) = (each for each in objects if each["kind"] == "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        references = {
            each["name"]: each.get("valueFrom", {}).get("secretKeyRef") for each in container["env"]
        }
        assert references["EUREKA_USER"] == {"name": "eureka", "key": "username"}
        assert references["EUREKA_PASSWORD"] == {"name": "eureka", "key": "password"}


def kustomized(folder: Path) -> str:
    """Return what kubectl makes of a folder with a kustomization."""
    kubectl = find_kubectl()
    assert kubectl is not None
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_values_of_the_page_about_a_shared_cluster_serve(tmp_path: Path) -> None:
    """The operator starts with the values of docs/guides/shared-cluster.md, and reads from them who may
    use which name.
    """
    (values,) = (
        yaml.safe_load(block.text)
        for block in find_code_blocks(ROOT / "docs" / "guides" / "shared-cluster.md")
        if block.language == "yaml"
    )
    settings = settings_of(chart_objects(values, tmp_path), tmp_path)
    assert Reservations(settings.reserve).lets_register("shop", "billing") is False
    assert settings.may_publish("shop", "ratings")

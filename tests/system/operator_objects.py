"""The objects of an operator as the component, the chart and the kustomize base make them, in a comparable
form.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from lab.programs import HELM, HELM_4, provide_programs

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "eurekube"
NAMESPACE = "eurekube-system"
RELEASE = "eurekube"

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Kind, namespace and name of an object."""

# Who made an object, which each maker writes in its own way.
_MAKERS_LABELS = (
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "eurekube.io/stack",
    "helm.sh/chart",
)
# What has the pods replaced: the engine names the component's Secret again; checksums are each maker's own.
_ROLL_OUT = ("eurekube.io/secrets-checksum", "eurekube.io/targets-checksum")

_PROGRAM = """
import asyncio, contextvars, json, sys
from pulumi.runtime import mocks, rpc
from pulumi.runtime.stack import run_pulumi_func
from eurekube_provider import EurekubeOperator
from eurekube_provider.resources.program import runs_without_engine

def clear(value):
    if isinstance(value, dict):
        if rpc._special_sig_key in value:
            return clear(value["value"])
        return {key: clear(one) for key, one in value.items()}
    return [clear(one) for one in value] if isinstance(value, list) else value

class Echo(mocks.Mocks):
    def __init__(self):
        self.objects = []
    def call(self, args):
        return {}
    def new_resource(self, args):
        if args.typ.startswith("kubernetes:"):
            kind = args.typ.rpartition(":")[2].removesuffix("Patch")
            self.objects.append({**clear(args.inputs), "kind": args.inputs.get("kind") or kind})
        return args.name, args.inputs

def made(arguments):
    runs_without_engine.set(True)  # without an engine, which would make up names for Secrets
    echo = Echo()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    mocks.set_mocks(echo, project="shop", stack="dev")
    program = lambda: (EurekubeOperator("eurekube", arguments), None)[1]
    loop.run_until_complete(run_pulumi_func(program))
    return echo.objects

print(json.dumps([contextvars.Context().run(made, each) for each in json.load(sys.stdin)]))
"""


def helm(*arguments: str, version: int = 3, fails: bool = False) -> str:
    """Run helm; return its standard output, or its standard error if ``fails`` says that it must fail."""
    name = HELM if version == 3 else HELM_4
    program = provide_programs([name])[name]
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=120, env=_clean_environment()
    )
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def chart_text(values: Mapping[str, Any], folder: Path, version: int = 3, *, fails: bool = False) -> str:
    """Return the YAML that helm renders from the chart with these values."""
    file = folder / "values.json"
    file.write_text(json.dumps(dict(values)))  # what YAML 1.1 means by y and no is not the same to all
    where = (RELEASE, str(CHART), "--namespace", NAMESPACE, "--values", str(file))
    return helm("template", *where, version=version, fails=fails)


def chart_objects(values: Mapping[str, Any], folder: Path, version: int = 3) -> list[Object]:
    """Return the objects that helm renders from the chart with these values."""
    return objects_of(chart_text(values, folder, version))


def objects_of(text: str) -> list[Object]:
    """Parse the documents of a YAML text."""
    return [item for item in yaml.safe_load_all(text) if item]


def component_objects(cases: Iterable[Mapping[str, Any]]) -> list[list[Object]]:
    """Return the objects of the component EurekubeOperator, for each of several sets of arguments."""
    given = json.dumps([dict(case) for case in cases])
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env=_clean_environment(),
    )
    assert done.returncode == 0, done.stderr
    made: list[list[Object]] = json.loads(done.stdout)
    return made


def comparable(objects: Iterable[Object]) -> dict[Key, Object]:
    """Return objects by kind, namespace and name, without Namespaces, hooks and harmless differences
    between their makers.
    """
    return {
        key(item): _normal(item)
        for item in objects
        if item["kind"] != "Namespace" and "helm.sh/hook" not in (item["metadata"].get("annotations") or {})
    }


def key(item: Object) -> Key:
    """Return the kind, namespace and name of an object."""
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace") or "", metadata["name"]


def _normal(item: Object) -> Object:
    kind = item["kind"]
    if kind == "CustomResourceDefinition":
        # The annotations say how each tool keeps it.
        return {"spec": item["spec"], "labels": item["metadata"]["labels"]}
    normal: Object = json.loads(json.dumps(item))
    _drop(normal["metadata"].get("labels"), _MAKERS_LABELS)
    for empty in ("labels", "annotations"):
        if not normal["metadata"].get(empty):
            normal["metadata"].pop(empty, None)
    if kind == "ServiceMonitor":
        _drop(normal["spec"]["selector"]["matchLabels"], _MAKERS_LABELS)
    if kind == "ConfigMap":
        normal["data"] = {name: yaml.safe_load(text) for name, text in normal["data"].items()}
    if kind == "Deployment":
        template = normal["spec"]["template"]
        _drop(template["metadata"].get("annotations"), _ROLL_OUT)
        template["metadata"] = {name: value for name, value in template["metadata"].items() if value}
        (container,) = template["spec"]["containers"]
        names = [variable["name"] for variable in container["env"]]
        assert len(names) == len(set(names)), names
        container["env"] = {variable.pop("name"): variable for variable in container["env"]}
    return normal


def _drop(texts: dict[str, Any] | None, names: Iterable[str]) -> None:
    for name in names:
        if texts:
            texts.pop(name, None)


def _clean_environment() -> dict[str, str]:
    """Return the environment without a kubeconfig and without settings of Eurekube, helm and Pulumi."""
    return {
        name: value
        for name, value in os.environ.items()
        if name != "KUBECONFIG" and not name.startswith(("EUREKA_", "EUREKUBE_", "HELM_", "PULUMI_"))
    }

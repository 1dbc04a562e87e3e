"""The Pulumi Kubernetes Operator, played on a real API server: Stacks as targets, and drift on a schedule.

The tests write status as its controllers of 2.9 do, and have CRDs of their own, with its fields.
"""

from __future__ import annotations

import copy
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.stack_refresh import StackAction
from eurekube_provider.kube.access import MERGE_PATCH_TYPE, PULUMI_STACKS, ApiResource
from eurekube_provider.operator.triggers.pulumi_stack import REQUEST_ANNOTATION, pulumi_stack_runner
from eurekube_provider.operator.triggers.targets import PulumiStack, StackRun, StackRunOutcome, StackRunResult
from lab import Lab
from lab.accounts import SERVICE_ACCOUNTS
from lab.programs import find_kubectl
from lab.workloads import Cluster
from tests.system.stacks import ROOT, needs_kubectl
from tests.system.test_triggers import STACK_CRD
from tests.unit.examples.test_ci import UPDATE

pytestmark = pytest.mark.lab

Object = dict[str, Any]

POLL_SECONDS = 0.2
RUN_SECONDS = 60.0

UPDATES = ApiResource("auto.pulumi.com", "v1alpha1", "updates")

_WORKSPACE = {
    "spec": {
        "image": "pulumi/pulumi:3.276.0-nonroot",
        "serviceAccountName": "shop",
        "podTemplate": {"spec": {"containers": [{"name": "pulumi", "volumeMounts": []}]}},
    }
}
_BACKEND = {"PULUMI_BACKEND_URL": {"type": "Literal", "literal": {"value": "file:///state/"}}}
_EVERY_MINUTE = {"continueResyncOnCommitMatch": False, "resyncFrequencySeconds": 60}
_UP, _REFRESH, _PREVIEW = StackAction.UP, StackAction.REFRESH, StackAction.PREVIEW

FORMS: Mapping[str, tuple[Object, set[StackAction]]] = {
    "git-branch": (
        {"projectRepo": "https://git.example.com/shop", "branch": "main", "shallow": True, **_EVERY_MINUTE},
        {_UP},
    ),
    "git-commit": (
        {"projectRepo": "https://git.example.com/shop", "commit": "1e2fc47", "refresh": False},
        {_UP},
    ),
    "flux": (
        {
            "fluxSource": {
                "sourceRef": {
                    "apiVersion": "source.toolkit.fluxcd.io/v1",
                    "kind": "GitRepository",
                    "name": "shop",
                },
                "dir": "registrations",
            },
            "refresh": True,
            "destroyOnFinalize": True,
        },
        {_UP, _REFRESH},
    ),
    "program-with-targets": (
        {
            "programRef": {"name": "shop"},
            "targets": ["urn:pulumi:dev::shop::eurekube:index:Instance::billing"],
        },
        {_UP},
    ),
    "program-with-values": (
        {
            "programRef": {"name": "shop"},
            "config": {
                "eurekube:url": "http://eureka/eureka",
                "ports": [8080, 9090],
                "limits": {"rate": 30.5},
            },
            "configRef": {"zones": {"name": "shop", "key": "zones.json", "json": True}},
        },
        {_UP},
    ),
    "its-own-source": ({"refresh": True, "continueResyncOnCommitMatch": True}, {_UP, _REFRESH}),
    "preview": (
        {
            "programRef": {"name": "shop"},
            "preview": True,
            "refresh": True,
            "prerequisites": [{"name": "git-branch"}],
            "resyncFrequencySeconds": 300,
        },
        {_PREVIEW},
    ),
}
"""Specs of Stacks by name, in the forms of the operator's own tests, and the actions that each serves."""


class Pko:
    """A played Pulumi Kubernetes Operator, with its two controllers.

    :ivar outcomes: by a Stack's name how its next runs end; one that is not named succeeds.
    :ivar updates: the message of an Update that fails, empty if it succeeds; ``None`` without a workspace.
    :ivar runs: each run of a Stack, by its name and kind.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self.outcomes: dict[str, list[str]] = {}
        self.updates: str | None = ""
        self.runs: list[tuple[str, str]] = []
        self._ended = threading.Event()

    @contextmanager
    def working(self, *looks: Callable[[], None]) -> Iterator[None]:
        """Run these controllers until the end of the block."""
        failures: list[Exception] = []

        def work() -> None:
            try:
                while not self._ended.wait(POLL_SECONDS):
                    try:
                        for look in looks:
                            look()
                    except KubernetesError as error:
                        if error.status_code != 429:  # a CRD that was installed just now
                            raise
            except Exception as error:  # noqa: BLE001 - the test says it
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            assert failures == []

    def reconcile_stacks(self) -> None:
        """Carry out each new request of a Stack, and write the run's end into the status."""
        for stack in self._cluster.items(PULUMI_STACKS, self._namespace):
            metadata, spec, status = stack["metadata"], stack["spec"], stack.get("status") or {}
            request = (metadata.get("annotations") or {}).get(REQUEST_ANNOTATION)
            if request is None or request == (status.get("lastUpdate") or {}).get("reconcileRequest"):
                continue
            name = metadata["name"]
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            reconciling = {"type": "Reconciling", "status": "True", "message": "Processing an update."}
            begun = {"name": f"{name}-1", "generation": metadata["generation"], "reconcileRequest": request}
            self._tell(
                PULUMI_STACKS,
                name,
                {
                    "observedGeneration": metadata["generation"],
                    "observedReconcileRequest": request,
                    "currentUpdate": begun,
                    "conditions": [{**reconciling, "reason": "Processing", "lastTransitionTime": now}],
                },
            )
            kind = "preview" if spec.get("preview") else "up"
            state = next(iter(self.outcomes.get(name, ())), "succeeded")
            self.outcomes[name] = self.outcomes.get(name, [])[1:]
            self.runs.append((name, kind))
            last = {
                **begun,
                "type": kind,
                "state": state,
                "message": "exit status 255",
                "lastResyncTime": now,
            }
            self._tell(PULUMI_STACKS, name, {"currentUpdate": None, "lastUpdate": last})

    def reconcile_updates(self) -> None:
        """Let each Update fail or succeed, or wait for its workspace."""
        for update in self._cluster.items(UPDATES, self._namespace):
            told = (update.get("status") or {}).get("conditions") or ()
            if any((one["type"], one["status"]) == ("Complete", "True") for one in told):
                continue
            message = self.updates or ""
            states = {"Progressing": False, "Failed": bool(message), "Complete": self.updates is not None}
            told = [{"type": kind, "status": str(is_so)} for kind, is_so in states.items()]
            self._tell(UPDATES, update["metadata"]["name"], {"conditions": told, "message": message})

    def _tell(self, resource: ApiResource, name: str, status: Object) -> None:
        path = resource.path(self._namespace, name, "status")
        self._cluster.access.request("PATCH", path, body={"status": status}, content_type=MERGE_PATCH_TYPE)


def asked(cluster: Cluster, namespace: str, name: str, action: StackAction, key: str) -> StackRunResult:
    """Ask the target to run a Stack; return its answer."""
    run = StackRun("shop", "rating", action, "eks", {}, key, 1, RUN_SECONDS, threading.Event())
    return pulumi_stack_runner(PulumiStack(namespace, name), cluster.access, poll_seconds=POLL_SECONDS)(run)


def test_stacks_in_every_form_are_run(cluster: Cluster, namespace: str) -> None:
    """A Stack of each form serves its actions, refuses the others, and keeps its spec unchanged."""
    cluster.install_crd(STACK_CRD)
    pko = Pko(cluster, namespace)
    written = {}
    for name, (spec, _) in FORMS.items():
        whole = {"stack": "dev", **spec, "envRefs": _BACKEND, "workspaceTemplate": _WORKSPACE}
        metadata = {"namespace": namespace, "name": name}
        item = {"apiVersion": "pulumi.com/v1", "kind": "Stack", "metadata": metadata, "spec": whole}
        written[name] = cluster.apply(PULUMI_STACKS, item)["spec"]
        assert written[name] == whole
    with pko.working(pko.reconcile_stacks):
        for name, (_, served) in FORMS.items():
            for action in StackAction:
                result = asked(cluster, namespace, name, action, f"for-{action}")
                assert (result.outcome is StackRunOutcome.SUCCEEDED) == (action in served), (name, result)
        kinds = {name: "preview" if _PREVIEW in served else "up" for name, (_, served) in FORMS.items()}
        assert pko.runs == [(name, kinds[name]) for name, (_, served) in FORMS.items() for _ in served]
        pko.outcomes["flux"] = ["failed"]
        failed = asked(cluster, namespace, "flux", _UP, "again")
        assert failed.outcome is StackRunOutcome.FAILED
        assert "up failed: exit status 255" in failed.message
        assert asked(cluster, namespace, "flux", _UP, "later").outcome is StackRunOutcome.SUCCEEDED
    for stack in cluster.items(PULUMI_STACKS, namespace):
        assert stack["spec"] == written[stack["metadata"]["name"]]
        assert stack["metadata"]["generation"] == 1


def update_crd() -> Object:
    """Return the CRD of Updates, whose spec has the published fields and no others."""
    spec = copy.deepcopy(UPDATE)
    del spec["additionalProperties"]  # the API server refuses other fields for a client that asks so
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {"name": UPDATES.version, "served": True, "storage": True, "subresources": {"status": {}}}
    names = {"kind": "Update", "listKind": "UpdateList", "plural": "updates", "singular": "update"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "updates.auto.pulumi.com"},
        "spec": {
            "group": UPDATES.group,
            "scope": "Namespaced",
            "names": names,
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@needs_kubectl
def test_drift_is_looked_for_on_a_schedule(
    lab: Lab, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """The example's job, with its own rights, fails for drift and prints why; no Update stays waiting."""
    cluster.install_crd(update_crd())
    pko = Pko(cluster, namespace)
    kubectl = str(find_kubectl())
    text = (ROOT / "examples" / "ci" / "pulumi-operator.yaml").read_text().replace("shop", namespace)
    subprocess.run(
        [kubectl, f"--kubeconfig={lab.kubeconfig}", "apply", "-f", "-"],
        input=text,
        text=True,
        check=True,
        capture_output=True,
    )
    objects = {each["kind"]: each for each in yaml.safe_load_all(text)}
    (tmp_path / "update.yaml").write_text(objects["ConfigMap"]["data"]["update.yaml"])
    pod = objects["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (line,) = container["args"]
    account = pod["serviceAccountName"]
    assert cluster.get(SERVICE_ACCOUNTS, account, namespace)
    kubeconfig = lab.service_account_kubeconfig(namespace, account, tmp_path / "kubeconfig")
    (tmp_path / "kubectl").symlink_to(kubectl)
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def look(patience: str = "60s") -> subprocess.CompletedProcess[str]:
        command = line.replace("/etc/drift", str(tmp_path)).replace("--timeout=15m", f"--timeout={patience}")
        # In a pod kubectl has the pod's namespace.
        for verb in ("wait", "get", "delete"):
            command = command.replace(f"kubectl {verb} ", f"kubectl --namespace={namespace} {verb} ")
        return subprocess.run(
            [*container["command"], command], env=environment, capture_output=True, text=True, check=False
        )

    with pko.working(pko.reconcile_updates):
        done = look()
        assert done.returncode == 0, done.stderr
        pko.updates = "error: no changes were expected but changes were proposed"
        done = look()
        assert done.returncode == 1, done.stderr
        assert pko.updates in done.stdout
        assert len(cluster.items(UPDATES, namespace)) == 2
        pko.updates = None
        done = look("2s")
        assert done.returncode == 1, done.stderr
        assert "timed out waiting for the condition" in done.stderr
    items = cluster.items(UPDATES, namespace)
    assert len(items) == 2
    asks = {"type": "preview", "refresh": True, "expectNoChanges": True, "workspaceName": "registrations"}
    assert all(asks.items() <= one["spec"].items() for one in items)

    # A field that the operator does not publish is refused, not dropped.
    update = tmp_path / "update.yaml"
    update.write_text(update.read_text().replace("refresh: true", "reload: true"))
    done = look()
    assert done.returncode != 0
    assert 'unknown field "spec.reload"' in done.stderr

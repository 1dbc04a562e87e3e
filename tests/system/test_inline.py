"""Our programs as inline programs of Pulumi's Automation API: in threads of another program's process.

The caller gives what a language host gives otherwise: a function that runs the program, the modules beside
it, and the interpreter of the dynamic provider's process. The configuration is the stack's, as usual.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi import automation

from eurekube_provider.core.model import Status
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.kube.access import NAMESPACES, SYNCERS
from lab import Lab
from lab.inline import make_program_runner
from lab.listing import list_uncached
from lab.workloads import CRDS, DEPLOYMENTS, Cluster
from tests.system.conftest import running
from tests.system.stacks import (
    ROOT,
    needs_kubernetes_plugin,
    needs_pulumi,
    needs_python_sdk,
    own_pulumi,
    python_sdk,
)

pytestmark = [
    pytest.mark.lab,
    pytest.mark.pulumi,
    pytest.mark.slow,
    needs_pulumi,
    needs_kubernetes_plugin,
    pytest.mark.timeout(600),
]

EXAMPLES = ROOT / "examples"


def inline_stack(source: Path, directory: Path, config: Mapping[str, Any]) -> automation.Stack:
    """Create a stack ``dev`` of a copy of a project, whose program runs in this process.

    :param directory: gets the copy; home and states are there, too.
    :param config: the project's own keys, or Eurekube's as ``eurekube:url``.
    """
    project = directory / source.name
    project.mkdir()
    for file in (source / "Pulumi.yaml", *source.glob("*.py")):
        shutil.copy(file, project)
    described = yaml.safe_load((project / "Pulumi.yaml").read_text())
    stack_file = project / described.get("stackConfigDir", ".") / "Pulumi.dev.yaml"
    stack_file.parent.mkdir(exist_ok=True)
    written = {key if ":" in key else f"{described['name']}:{key}": value for key, value in config.items()}
    stack_file.write_text(yaml.safe_dump({"config": written}))
    return automation.create_stack(
        "dev",
        project_name=described["name"],
        program=make_program_runner(project / "__main__.py"),
        opts=automation.LocalWorkspaceOptions(
            work_dir=str(project),
            # The CLI itself, not what runs programs inline for those who cannot.
            env_vars={
                **own_pulumi(directory),
                "PATH": os.environ["PATH"],
                "PULUMI_PYTHON_CMD": sys.executable,
            },
        ),
    )


def registered(url: str, project: str) -> dict[str, Status]:
    """Return the statuses of the registrations of a project's stack dev, by application and host."""
    owner = f"stack/organization/{project}/dev/"
    found = (each for each in list_uncached(url) if (each.owner or "").startswith(owner))
    return {f"{each.application} {each.host_name}": each.status for each in found}


def check_life(stack: automation.Stack, url: str, *expected: str) -> None:
    """Check that up registers what is expected, preview and refresh find nothing to do, and destroy leaves
    nothing.
    """
    project = stack.workspace.project_settings().name
    stack.up(on_output=print)
    assert registered(url, project) == dict.fromkeys(expected, Status.UP)
    stack.preview(expect_no_changes=True)
    stack.refresh(expect_no_changes=True)
    stack.destroy()
    assert registered(url, project) == {}


def test_the_repositorys_program(lab: Lab, cluster: Cluster, tmp_path: Path) -> None:
    """The repository's own program makes CRDs, operator, syncer and registration; another stack uses its
    exports; destroy leaves nothing.
    """
    url = lab.eureka_urls[0]
    home, team = "inline-system", "inline"
    registration = {"name": "billing", "application": "inline", "hostName": "192.0.2.10", "port": 8080}
    config = {
        "url": url,
        "kubeconfig": str(lab.kubeconfig),
        # Other tests have syncers in this cluster.
        "operator": {"replicas": 0, "namespace": home, "forceDestroy": True},
        "namespaces": [team],
        "syncers": [{"name": "rating", "namespace": team, "app": "rating"}],
        "registrations": [registration],
    }
    stack = inline_stack(ROOT, tmp_path, config)
    made = stack.up(on_output=print)
    assert made.outputs["syncers"].value == {"rating": f"{team}/rating"}
    assert registered(url, "eurekube") == {"INLINE 192.0.2.10": Status.UP}
    assert cluster.get(CRDS, "eurekasyncers.eurekube.io") is not None
    assert cluster.get(DEPLOYMENTS, "eurekube-operator", home) is not None
    assert (cluster.get(SYNCERS, "rating", team) or {})["spec"]["selector"] == {"app": "rating"}
    stack.preview(expect_no_changes=True)
    stack.refresh(expect_no_changes=True)

    config = {"platform": "organization/eurekube/dev", "hosts": ["192.0.2.61"], "eurekube:url": url}
    builds_on_it = inline_stack(EXAMPLES / "stack-reference", tmp_path, config)
    check_life(builds_on_it, url, "BILLING 192.0.2.61")

    stack.destroy()
    assert registered(url, "eurekube") == {}
    assert [cluster.get(NAMESPACES, name) for name in (home, team)] == [None, None]


@needs_python_sdk
def test_examples_two_at_once_against_two_eurekas(
    lab: Lab,
    cluster: Cluster,
    namespace: str,
    plain: Peer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Programs that run in two threads each register at the Eureka of their own stack."""
    here, there = {"eurekube:url": lab.eureka_urls[0]}, {"eurekube:url": plain.url}
    pods = [f"RATING {address}" for address in running(cluster, namespace, "rating", 2)]
    service = {"namespace": namespace, "service": "rating", "eurekube:kubeconfig": str(lab.kubeconfig)}
    orders = {"application": "orders", "host": "192.0.2.60", "port": 8080}
    monkeypatch.syspath_prepend(EXAMPLES / "shared-eureka")
    monkeypatch.syspath_prepend(python_sdk(tmp_path))
    monkeypatch.setenv(
        "PATH", str(Path(sys.prefix) / "bin"), prepend=os.pathsep
    )  # the native provider's plugin

    def live(example: str, side: str, config: dict[str, Any], *expected: str) -> None:
        directory = tmp_path / side
        directory.mkdir(exist_ok=True)
        stack = inline_stack(EXAMPLES / example, directory, config)
        check_life(stack, config["eurekube:url"], *expected)

    def first() -> None:
        live("endpoints", "first", {**here, **service, "fewest": 1}, *pods)
        live("shared-eureka", "first", {**here, "registrations": [orders]}, "ORDERS 192.0.2.60")

    def second() -> None:
        live("foreign", "second", {**there, **service}, *pods, "RATING-LEGACY 192.0.2.10")
        rating = ("RATING 192.0.2.11", "RATING 192.0.2.12")
        live("native-python", "second", there, "BILLING 192.0.2.10", *rating)

    with ThreadPoolExecutor(2) as threads:
        for ended in [threads.submit(first), threads.submit(second)]:
            ended.result()

"""The trial of `deploy/try` on real servers, with the commands of docs/start/try.md: `python -m lab.trial
FILE`.

It runs inside a network of the lab's own. Pods are processes with addresses of their own, and run the
commands of their containers: this Python with this package replaces every image. Three parts are played: a
cluster's DNS (a Service's name in a URL becomes its address), the pods of the operator (its program runs
beside the cluster), and the parts of a kubelet that `kubectl` asks for logs and forwarded ports.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from lab.lab import Lab
from lab.operators import make_operator_process
from lab.programs import find_kubectl
from lab.service_proxy import ServiceProxy
from lab.workloads import Object, wait_for
from scripts.blocks import find_code_blocks

ROOT = Path(__file__).parents[1]
TRIAL_PAGE_PATH = ROOT / "docs" / "start" / "try.md"
NAMESPACE = "eurekube-try"
EUREKA_ADDRESS = "10.96.0.77"
_SKIPPED_COMMAND_PATTERN = re.compile(r"^(kind|make|kubectl logs|kubectl port-forward|sleep)\b")
_CALLER_LOGS_COMMAND_PREFIX = "kubectl logs deployment/caller "


def load_adapted_manifests(kubectl: Path) -> list[Object]:
    """Return the objects of `deploy/try`, with Eureka's address in place of its name, and without the
    operator's pods.
    """
    done = subprocess.run(
        [kubectl, "kustomize", ROOT / "deploy" / "try"], check=True, capture_output=True, text=True
    )
    text = re.sub(r"http://eureka(\.eurekube-try)?:8761", f"http://{EUREKA_ADDRESS}:8761", done.stdout)
    objects: list[Object] = list(yaml.safe_load_all(text))
    for one in objects:
        match one["kind"], one["metadata"]["name"]:
            case "Service", "eureka":
                one["spec"]["clusterIP"] = EUREKA_ADDRESS
            case "Deployment", "eurekube-operator":
                one["spec"]["replicas"] = 0
    return objects


class Trial:
    """A user who types the page's commands, in a cluster of the lab.

    :ivar seen: the output of each block of commands, in the page's order.
    """

    def __init__(self, lab: Lab, kubectl: Path) -> None:
        self.seen: list[str] = []
        self._lab = lab
        self._folder = lab.directory / "trial"
        (self._folder / "deploy").mkdir(parents=True)
        (self._folder / ".venv").symlink_to(Path(sys.prefix))
        (self._folder / "deploy" / "try").mkdir()
        for name in ("kustomization.yaml", "all.yaml", "syncer.yaml"):
            (self._folder / "deploy" / "try" / name).write_text(self._manifest_text(name, kubectl))
        path = os.pathsep.join([str(kubectl.parent), os.environ["PATH"]])
        self._environment = {"PATH": path, "KUBECONFIG": str(lab.kubeconfig), "HOME": str(self._folder)}

    def run_commands(self, script: str) -> None:
        """Run a block of the page's commands; each must succeed.

        :raises RuntimeError: a command failed.
        """
        printed = []
        for command in script.replace("\\\n", " ").splitlines():
            if command.startswith(_CALLER_LOGS_COMMAND_PREFIX):
                printed.append(self.read_next_caller_line())
            elif not _SKIPPED_COMMAND_PATTERN.match(command):
                printed.append(
                    self._run(command.replace("http://127.0.0.1:8761", f"http://{EUREKA_ADDRESS}:8761"))
                )
        self.seen.append("\n".join(filter(None, printed)))

    def read_next_caller_line(self) -> str:
        """Return the caller's next line, which shows the present instances."""
        (log,) = (self._lab.directory / "logs").glob(f"{NAMESPACE}-caller-*-main.log")
        lines = log.read_text().count("\n")
        said = wait_for(
            lambda: log.read_text().splitlines()[lines + 1 :], "the caller's next two lines", 30.0
        )
        return said[0]

    def _run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    def _manifest_text(self, name: str, kubectl: Path) -> str:
        if name == "all.yaml":
            return yaml.safe_dump_all(load_adapted_manifests(kubectl))
        if name == "kustomization.yaml":
            return "resources: [all.yaml]\n"
        return (ROOT / "deploy" / "try" / name).read_text()


def main() -> None:
    """Run the commands of docs/start/try.md, and write their output as JSON."""
    parser = argparse.ArgumentParser(prog="python -m lab.trial", description=__doc__)
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kubectl = find_kubectl()
    if kubectl is None:
        raise SystemExit("kubectl is missing")
    scripts = [block.script() for block in find_code_blocks(TRIAL_PAGE_PATH) if block.language == "bash"]
    with Lab(eureka=0, pods="real") as lab:
        proxy = ServiceProxy(lab.kubeconfig)
        proxy.start()
        trial = Trial(lab, kubectl)
        operator = make_operator_process(
            "operator",
            lab.directory / "logs" / "operator.log",
            EUREKA_URL=f"http://{EUREKA_ADDRESS}:8761/eureka",
            KUBECONFIG=str(lab.kubeconfig),
            LEASE_NAMESPACE="eurekube-system",
            OPERATOR_NAME="eurekube",
        )
        try:
            for number, script in enumerate(scripts):
                trial.run_commands(script)
                if number == 1:
                    operator.start()
        finally:
            operator.kill()
            proxy.stop()
    file.write_text(json.dumps(trial.seen))


if __name__ == "__main__":
    main()

"""The story of `eurekube demo` on real servers: `make demo-real`.

Every step is checked; the first check that fails ends the demo with exit code 1 and the reason.
"""

import argparse
import logging
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.core.model import Instance
from eurekube_provider.demo.stage import APP, NAMESPACE, PORT, Object, OperatorProcess, StoryFailed
from eurekube_provider.demo.story import Story, environment_without_foreign_servers
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.runtime.child_process import ChildProcess
from lab.engines import choose_engine
from lab.errors import LabError
from lab.lab import Lab
from lab.listing import list_uncached
from lab.ports import FIXED_PORTS
from lab.processes import Process
from lab.progress import Stopwatch, say
from lab.supervisor import (
    StopSignal,
    describe_running_lab,
    raising_on_signals,
    start_detached,
    supervisor_pid,
)
from lab.workloads import Cluster

ROOT = Path(__file__).parent.parent
STACK_NAME = "dev"

_EUREKA_SPRING_PROPERTIES = {
    "eureka.server.eviction-interval-timer-in-ms": "5000",
    "eureka.server.enable-self-preservation": "false",
}
"""Settings with which the server soon evicts an instance that nobody renews: an instance that stays has been
renewed.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if every check held."""
    parser = argparse.ArgumentParser(prog="python -m lab.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave everything up; `make lab-down` ends it")
    parser.add_argument("--picture", metavar="FILE", type=Path, help="keep the table as an SVG")
    parser.add_argument("--hold-operator", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.hold_operator:
        return _run_operator_with_lab(Path(options.hold_operator))
    stopwatch = Stopwatch()
    logging.getLogger("eurekube_provider").addHandler(logging.NullHandler())
    try:
        with raising_on_signals(), ExitStack() as resources:
            check_count = _run_story(resources, keep=options.keep, picture=options.picture)
    except StoryFailed as error:
        say(f"demo FAILED: {error}")
        return 1
    except (LabError, EurekubeError) as error:
        say(f"demo could not go on: {error}")
        return 1
    except (StopSignal, KeyboardInterrupt):
        say(
            "interrupted; "
            f"{describe_running_lab(ROOT / '.lab') if options.keep else 'nothing is left running'}"
        )
        return 130
    sys.stdout.write(f"\ndemo passed: {check_count} checks in {stopwatch}\n")
    return 0


def _run_story(resources: ExitStack, *, keep: bool, picture: Path | None) -> int:
    """Start the servers, run the story on them, and return the number of checks."""
    directory = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="eurekube-demo-")))
    folder = ROOT / ".lab" if keep else None
    if folder is not None:
        if supervisor_pid(folder) is not None:
            raise LabError("a lab is up already, and the demo needs a fresh one: `make lab-down` first")
        state = start_detached(folder, 1, ports=FIXED_PORTS)
        stage = RealStage(state.eureka_urls, Path(state.kubeconfig), directory, folder)
    else:
        lab = resources.enter_context(Lab(eureka=1, eureka_settings=_EUREKA_SPRING_PROPERTIES))
        stage = RealStage(lab.eureka_urls, lab.kubeconfig, directory)
    story = Story(stage, picture)
    resources.callback(story.close)
    story.deploy_and_start_operator()
    story.play_steps(keep=keep)
    if keep:
        _print_urls(stage, story)
    else:
        story.take_program_down()
    story.print_summary()
    return story.check_count


class RealStage:
    """A lab as the demo's stage: a Eureka server by Spring, and a Kubernetes control plane with pods played
    by kwok.

    :param directory: where files may be written.
    :param folder: folder of a lab that stays up with its operator; None for a lab that ends with the demo.
    """

    intro_lines = (
        "On real servers: a Eureka by Spring, and a kube-apiserver with etcd and its controllers.",
        "kwok plays the nodes, which run no containers. Nothing of yours is read or changed.",
    )
    renewal_proof_seconds = 100.0
    """Seconds of waiting, longer than the 90 s that a registration lives without renewal."""

    def __init__(
        self, eureka_urls: list[str], kubeconfig: Path, directory: Path, folder: Path | None = None
    ) -> None:
        self.eureka_urls = eureka_urls
        self.kubeconfig = kubeconfig
        self.workload = DeployedWorkload(Cluster(kubeconfig))
        self._directory = directory
        self._folder = folder
        config = {"eurekube:url": ",".join(eureka_urls), "eurekube:kubeconfig": str(kubeconfig)}
        self._engine = choose_engine(directory, STACK_NAME, config, kubeconfig)
        self.deploy_tool = self._engine.name

    def deploy(self) -> None:
        """Deploy with Pulumi, or with `eurekube apply` where Pulumi is missing."""
        self._engine.up()

    def take_down(self) -> None:
        """Remove all that was deployed."""
        self._engine.destroy()

    def start_operator(self, environment: Mapping[str, str]) -> OperatorProcess:
        """Start an operator that ends with the demo, or with the lab that stays up."""
        variables = {**environment_without_foreign_servers(), **environment}
        if self._folder is not None:
            return DetachedOperator(self._folder, variables)
        command = [sys.executable, "-m", "eurekube_provider.operator"]
        return ChildProcess(command, self._directory / "operator.log", variables)

    def instances(self, application: str) -> list[Instance]:
        """Return the instances of an application that the server holds, past its caches."""
        return list_uncached(self.eureka_urls[0], application)

    def pause(self, seconds: float) -> None:
        """Wait; a signal interrupts the wait, as anywhere in this process."""
        time.sleep(seconds)


class DeployedWorkload:
    """The story's Service, with pods of a Deployment."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._replicas = 0

    def start(self, replicas: int) -> None:
        """Create the Service and the Deployment."""
        self._replicas = replicas
        self._cluster.apply_service(NAMESPACE, APP, PORT)
        self._cluster.apply_deployment(NAMESPACE, APP, replicas, PORT)

    def scale(self, replicas: int) -> None:
        """Scale the Deployment."""
        self._replicas = replicas
        self._cluster.scale(NAMESPACE, APP, replicas)

    def set_ready(self, pod: Object, *, ready: bool) -> None:
        """Set a pod's readiness, as a kubelet would."""
        self._cluster.set_ready(pod, ready=ready)

    def roll(self) -> None:
        """Deploy another version, so that all pods are replaced."""
        self._cluster.apply_deployment(NAMESPACE, APP, self._replicas, PORT, version="2")


class DetachedOperator:
    """An operator that runs on after the demo, until the lab of this folder goes down."""

    exit_code = None

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._log = folder / "logs" / "operator.log"
        with (folder / "operator-holder.log").open("wb") as log:
            subprocess.Popen(
                [sys.executable, "-m", "lab.demo", "--hold-operator", str(folder)],
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def read_output(self) -> str:
        """Return the operator's log so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def stop(self) -> None:
        """Do nothing: the operator ends with the lab."""


def _run_operator_with_lab(folder: Path) -> int:
    """Run the operator as long as the lab of this folder is up."""
    operator = Process(
        "operator", [sys.executable, "-m", "eurekube_provider.operator"], log=folder / "logs" / "operator.log"
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    operator.launch()
    try:
        while supervisor_pid(folder) is not None:
            time.sleep(0.5)
    finally:
        operator.stop()
        for name in ("operator.kubeconfig", "operator-holder.log"):
            (folder / name).unlink(missing_ok=True)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    return 0


def _print_urls(stage: RealStage, story: Story) -> None:
    for url in stage.eureka_urls:
        sys.stdout.write(f"\nEureka      {url.removesuffix('/eureka')}/  (dashboard)\n")
    port = story.operator_port()
    if port is not None:
        sys.stdout.write(f"Operator    http://127.0.0.1:{port}/  (status page)\n")
    server = KubeAccess.load(stage.kubeconfig).server
    sys.stdout.write(f"Kubernetes  {server}\n\nexport KUBECONFIG={stage.kubeconfig}\n\n")
    sys.stdout.write("`make lab-down` ends all of it\n")


if __name__ == "__main__":
    sys.exit(main())

"""The main job on real servers, told as a story: `make demo`.

Every step is checked; the first check that fails ends the demo with exit code 1 and the reason.
"""

import argparse
import logging
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import requests
import yaml
from rich.console import Console

from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import NAMESPACES, SYNCERS, KubeAccess
from lab.board import Board
from lab.engines import choose_engine
from lab.errors import LabError
from lab.lab import Lab
from lab.listing import listed_now
from lab.ports import FIXED_PORTS
from lab.processes import Process
from lab.progress import Stopwatch, say
from lab.supervisor import Stopped, raising_on_signals, start_detached, supervisor_pid, what_is_left
from lab.workloads import Cluster, wait_for

ROOT = Path(__file__).parent.parent
STACK = "dev"
NAMESPACE, APP, PORT = "shop", "rating", 8080
OPERATOR_NAMESPACE, OPERATOR_ACCOUNT = "eurekube-system", "eurekube-operator"
RENEWED_SECONDS = 100.0
"""Longer than the 90 s for which a registration that nobody renews lives at least."""


class Failed(Exception):
    """A check did not hold."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Tell the story; 0 if every check held."""
    parser = argparse.ArgumentParser(prog="python -m lab.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave everything up; `make lab-down` ends it")
    parser.add_argument("--picture", metavar="FILE", type=Path, help="keep the table as an SVG")
    parser.add_argument("--hold-operator", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.hold_operator:
        return _hold_operator(Path(options.hold_operator))
    stopwatch = Stopwatch()
    logging.getLogger("eurekube_provider").addHandler(logging.NullHandler())
    try:
        with raising_on_signals(), ExitStack() as resources:
            checks = _tell(resources, keep=options.keep, picture=options.picture)
    except (Failed, TimeoutError) as error:
        say(f"demo FAILED: {error}")
        return 1
    except (LabError, EurekubeError) as error:
        say(f"demo could not go on: {error}")
        return 1
    except (Stopped, KeyboardInterrupt):
        say(f"interrupted; {what_is_left(ROOT / '.lab') if options.keep else 'nothing is left running'}")
        return 130
    sys.stdout.write(f"\ndemo passed: {checks} checks in {stopwatch}\n")
    return 0


def _tell(resources: ExitStack, *, keep: bool, picture: Path | None) -> int:
    """Set the stage, and tell the story on it."""
    directory = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="eurekube-demo-")))
    if keep:
        folder = ROOT / ".lab"
        if supervisor_pid(folder) is not None:
            raise LabError("a lab is up already, and the demo needs a fresh one: `make lab-down` first")
        state = start_detached(folder, 1, ports=FIXED_PORTS)
        eureka_urls, kubeconfig = state.eureka_urls, Path(state.kubeconfig)
    else:
        lab = resources.enter_context(Lab(eureka=1, eureka_settings=_SETTINGS))
        eureka_urls, kubeconfig = lab.eureka_urls, lab.kubeconfig
    story = Story(eureka_urls, kubeconfig, directory, picture)
    resources.callback(story.peers.close)
    story.deploy()
    if keep:
        _start_held_operator(story, folder)
        story.operator_is_ready = lambda: _is_ready(folder / "logs" / "operator.log")
    else:
        operator = Process(
            "operator",
            [sys.executable, "-m", "eurekube_provider.operator"],
            log=directory / "operator.log",
            environment=story.operator_environment(directory / "operator.kubeconfig"),
        )
        operator.launch()
        resources.callback(operator.stop)
        story.operator_log = operator.tail
        story.operator_is_ready = lambda: _is_ready(operator.log)
    with story.board(None if not sys.stdout.isatty() else Console()) as board:
        story.tell(board, keep=keep)
    if keep:
        _say_what_is_up(eureka_urls, kubeconfig, folder / "logs" / "operator.log")
    else:
        story.take_down()
    story.sum_up()
    return story.checks


_SETTINGS = {
    "eureka.server.eviction-interval-timer-in-ms": "5000",
    "eureka.server.enable-self-preservation": "false",
}
"""An instance that nobody renews goes at once, so that the one which stays has been renewed."""


class Story:
    """The steps, in order; each says what it does and checks that it happened."""

    def __init__(
        self, eureka_urls: list[str], kubeconfig: Path, directory: Path, picture: Path | None
    ) -> None:
        self.checks = 0
        self._picture = picture
        self.peers = Peers(Connection.parse(eureka_urls))
        self.operator_log: Callable[[], str] = str
        self.operator_is_ready: Callable[[], object] = lambda: True
        self._board: Board
        self._urls = eureka_urls
        self._kubeconfig = kubeconfig
        self._cluster = Cluster(kubeconfig)
        config = {"eurekube:url": ",".join(eureka_urls), "eurekube:kubeconfig": str(kubeconfig)}
        self._engine = choose_engine(directory, STACK, config, kubeconfig)
        self._say: Callable[[str], None] = lambda line: print(line, flush=True)
        self._samples: list[float] = []
        self._deployed_at = 0.0
        self._stack_key: tuple[str, str] | None = None
        self._renewals: set[int] = set()
        dev = yaml.safe_load((ROOT / "stacks" / f"Pulumi.{STACK}.yaml").read_text())["config"]
        self._stack_application = str(dev["eurekube:registrations"][0]["application"]).upper()

    def deploy(self) -> None:
        """The program: CRD, operator's identity and rights, the syncer, and a registration of the stack."""
        self._say(f"\n1. The program is deployed by {self._engine.name}")
        stopwatch = Stopwatch()
        self._engine.up()
        self._deployed_at = time.monotonic()
        self._check(f"deployed in {stopwatch}", lambda: self._cluster.get(SYNCERS, APP, NAMESPACE))
        self._check("the stack's registration stands in Eureka", self._stack_instance)

    def operator_environment(self, kubeconfig: Path) -> dict[str, str]:
        """The operator's: with the token of the ServiceAccount that the program created, and no other."""
        path = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/serviceaccounts/{OPERATOR_ACCOUNT}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self._cluster.access.request("POST", path, body=request)["status"]["token"]
        document = yaml.safe_load(self._kubeconfig.read_text())
        document["users"] = [{"name": user["name"], "user": {"token": token}} for user in document["users"]]
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(yaml.safe_dump(document))
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
        return {
            **inherited,
            "EUREKA_URL": ",".join(self._urls),
            "KUBECONFIG": str(kubeconfig),
            "POD_NAMESPACE": OPERATOR_NAMESPACE,
            "WEB_ADDRESS": "127.0.0.1:0",
        }

    def board(self, live: Console | None) -> Board:
        """The table of both sides."""
        uid = self._cluster.access.get(NAMESPACES.path(name="kube-system"))["metadata"]["uid"]
        return Board(self._cluster.access, self.peers, NAMESPACE, APP, PORT, uid[:8], live)

    def tell(self, board: Board, *, keep: bool) -> None:
        """From the first pod to the deleted syncer."""
        self._board, self._say, self._samples = board, board.say, board.samples
        self._check("the operator is ready", self.operator_is_ready)
        stack = self._stack_instance()
        if stack is not None:
            board.follow(self._stack_application.lower(), stack)

        self._say(f"2. A Deployment {APP} with 2 pods appears as {APP.upper()} in Eureka")
        self._cluster.service(NAMESPACE, APP, PORT)
        self._cluster.deployment(NAMESPACE, APP, 2, PORT)
        self._agree("2 pods at 10.0.0.1 and 10.0.0.2 are UP", {"10.0.0.1": "UP", "10.0.0.2": "UP"})

        self._say("3. It is scaled to 5")
        self._cluster.scale(NAMESPACE, APP, 5)
        self._agree("5 pods are UP", self._ready(5))
        if self._picture is not None:
            self._picture.write_text(board.picture("3. It is scaled to 5"))

        self._say("4. One pod becomes unready, and ready again")
        pod = self._cluster.pods(NAMESPACE, APP)[0]
        self._cluster.set_ready(pod, ready=False)
        self._agree("its instance is DOWN", self._ready(4) | {pod["status"]["podIP"]: "DOWN"})
        self._cluster.set_ready(pod, ready=True)
        self._agree("and UP again", self._ready(5))

        self._say("5. The Deployment is rolled")
        old = {item["metadata"]["name"] for item in self._cluster.pods(NAMESPACE, APP)}
        self._cluster.deployment(NAMESPACE, APP, 5, PORT, version="2")
        wait_for(
            lambda: not old & {item["metadata"]["name"] for item in self._cluster.pods(NAMESPACE, APP)},
            "the old pods to go",
            60.0,
        )
        self._agree("only the new pods are there, all UP", self._ready(5))

        self._say(
            f"6. The stack's registration {self._stack_application} is renewed by the operator:"
            f" waiting until it is {RENEWED_SECONDS:.0f} s old"
        )
        self._watch_renewals()
        self._check(
            f"after {RENEWED_SECONDS:.0f} s it never lapsed, and was renewed {len(self._renewals) - 1} times",
            lambda: len(self._renewals) > 3 and self._stack_instance(),
        )
        if keep:
            return
        self._say("7. The syncer is deleted")
        self._cluster.delete(SYNCERS, APP, NAMESPACE)
        self._agree("its instances are gone", {})
        self._check("and so is the syncer", lambda: self._cluster.get(SYNCERS, APP, NAMESPACE) is None)
        self._check("the stack's registration is still there", self._stack_instance)

    def take_down(self) -> None:
        """Nothing of ours stays behind, although the operator is still renewing."""
        self._say = lambda line: print(line, flush=True)
        self._say("8. The program is taken down while the operator runs")
        self._engine.destroy()
        time.sleep(3.0)
        self._check("nothing of ours is left in Eureka", lambda: self._stack_instance() is None)

    def sum_up(self) -> None:
        """How long the changes took."""
        if self._samples:
            median, most = statistics.median(self._samples), max(self._samples)
            self._say(
                f"\n{len(self._samples)} changes: from the EndpointSlice to Eureka {median:.1f} ms"
                f" in the median, {most:.1f} ms at most"
            )

    def _ready(self, count: int) -> dict[str, str]:
        """Wait for so many ready endpoints in Kubernetes: what Eureka has to show."""
        addresses: list[str] = []

        def are_ready() -> bool:
            addresses[:] = self._cluster.ready_addresses(NAMESPACE, APP)
            return len(addresses) == count

        wait_for(are_ready, f"{count} ready endpoints", 60.0)
        return dict.fromkeys(addresses, "UP")

    def _agree(self, what: str, expected: dict[str, str]) -> None:
        """Eureka shows just these addresses of the application."""

        def seen() -> dict[str, str]:
            return {one.ip_address: one.status.value for one in listed_now(self._urls[0], APP)}

        self._board.settle()
        self._check(what, lambda: seen() == expected, seen)

    def _check(
        self,
        what: str,
        holds: Callable[[], object],
        seen: Callable[[], object] | None = None,
        seconds: float = 30.0,
    ) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                found = f"; seen: {seen()}" if seen else ""
                raise Failed(f"{what}: not within {seconds:.0f} s{found}\n{self.operator_log()}")
            time.sleep(0.02)
        self.checks += 1
        self._say(f"  ok  {what}")

    def _stack_instance(self) -> Instance | None:
        if self._stack_key is None:
            for one in listed_now(self._urls[0], self._stack_application):
                self._stack_key = one.key
        return self.peers.read(*self._stack_key) if self._stack_key else None

    def _watch_renewals(self) -> None:
        """Read the registration twice a second, note when it was renewed, fail if it is ever missing."""
        stack = self._stack_instance()
        if stack is None:
            raise Failed(f"{self._stack_application} is not in Eureka\n{self.operator_log()}")
        url = f"{self._urls[0]}/apps/{stack.application}/{quote(stack.instance_id, safe='')}"
        while True:
            answer = requests.get(url, headers={"Accept": "application/json"}, timeout=5)
            age = time.monotonic() - self._deployed_at
            if answer.status_code != 200:
                raise Failed(f"{stack.application} lapsed after {age:.0f} s\n{self.operator_log()}")
            self._renewals.add(answer.json()["instance"]["leaseInfo"]["lastRenewalTimestamp"])
            self._board.note(stack.application.lower(), f"{age:.0f} s old")
            if age >= RENEWED_SECONDS:
                return
            time.sleep(0.5)


def _is_ready(log: Path) -> bool:
    return log.exists() and "operator is ready" in log.read_text()


def _start_held_operator(story: Story, folder: Path) -> None:
    """An operator that runs on after the demo, until the lab goes down."""
    environment = story.operator_environment(folder / "operator.kubeconfig")
    with (folder / "operator-holder.log").open("wb") as log:
        subprocess.Popen(
            [sys.executable, "-m", "lab.demo", "--hold-operator", str(folder)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _hold_operator(folder: Path) -> int:
    """Run the operator for as long as the lab of this folder is up."""
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


def _say_what_is_up(eureka_urls: list[str], kubeconfig: Path, operator_log: Path) -> None:
    for url in eureka_urls:
        sys.stdout.write(f"\nEureka      {url.removesuffix('/eureka')}/  (dashboard)\n")
    served = re.search(r'"web is served", "port": (\d+)', operator_log.read_text())
    if served:
        sys.stdout.write(f"Operator    http://127.0.0.1:{served[1]}/  (status page)\n")
    server = KubeAccess.load(kubeconfig).server
    sys.stdout.write(
        f"Kubernetes  {server}\n\nexport KUBECONFIG={kubeconfig}\n\n`make lab-down` ends all of it\n"
    )


if __name__ == "__main__":
    sys.exit(main())

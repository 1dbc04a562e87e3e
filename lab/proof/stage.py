"""The stage of the proof: a lab with real pods, a Eureka or two, operators and callers, with the settings
of a variant.
"""

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

import requests

from eurekube_provider.kube.access import EVENTS, MERGE_PATCH_TYPE, NODES
from lab.lab import Lab
from lab.listing import LONGEST_LIST_DELAY_SECONDS
from lab.operators import make_operator_process
from lab.processes import Process
from lab.progress import say
from lab.proof.form import ProofSettings
from lab.proof.subjects import POOL_LABEL, PORT, Scenario, Subject
from lab.spring import SpringClient
from lab.staging import ProofStage
from lab.workloads import DEPLOYMENTS, Cluster, wait_for

NODES_BY_POOL = {"common": ("node-1", "node-2"), "drained": ("node-3", "node-4")}
_PEER_COUNT = 2
_file_numbers = itertools.count(1)


class Stage(ProofStage):
    """The proof's servers, operators, applications and callers: `with Stage(settings) as stage:`."""

    def __init__(self, settings: ProofSettings) -> None:
        super().__init__()
        self.settings = settings
        self._operators: dict[str, Process] = {}
        self._callers: list[SpringClient] = []

    def prepare(self) -> None:
        """Start servers, operators, applications and callers."""
        settings = {
            "eureka_settings": self.settings.eureka_settings,
            "register_with_eureka": True,
        }
        nodes = sum(len(names) for names in NODES_BY_POOL.values())
        self.lab = Lab(eureka=_PEER_COUNT, nodes=nodes, pods="real", **settings)  # type: ignore[arg-type]
        self.cleanups.enter_context(self.lab)
        self.disturbed = self.lab
        if not self.settings.shares_eureka:
            self.disturbed = Lab(eureka=_PEER_COUNT, kubernetes=False, **settings)  # type: ignore[arg-type]
            self.cleanups.enter_context(self.disturbed)
        self.cluster = Cluster(self.lab.kubeconfig)
        self.install_crds()
        for pool, names in NODES_BY_POOL.items():
            for name in names:
                labels = {"metadata": {"labels": {POOL_LABEL: pool}}}
                self.cluster.access.request(
                    "PATCH", NODES.path(None, name), body=labels, content_type=MERGE_PATCH_TYPE
                )
        for namespace in {scenario.namespace for scenario in Scenario}:
            self.cluster.create_namespace(namespace)
        for name in ("operator-a", "operator-b"):
            self.start_operator(name, Scenario.OPERATOR)
        self.start_operator("operator-c", Scenario.ROLLED)
        self.start_operator("operator-d", Scenario.PEER)
        for subject in self.settings.subjects:
            self._deploy_subject(subject)
        self._wait_until_listed()
        self._start_callers()

    def start_operator(self, name: str, scenario: Scenario) -> None:
        """Start a replica for the applications of a scenario, and wait until it works or stands by."""
        log = self.lab.directory / "logs" / f"{name}-{next(_file_numbers)}.log"
        environment = {
            "EUREKA_URL": ",".join(self._lab_of_scenario(scenario).eureka_urls),
            "KUBECONFIG": str(self.lab.kubeconfig),
            "WATCH_NAMESPACE": scenario.namespace,
            "LEASE_NAME": scenario.namespace,
            "POD_NAME": name,
            **self.settings.operator_settings,
        }
        operator = make_operator_process(name, log, **environment)
        self._operators[name] = operator
        self.cleanups.callback(operator.kill)
        operator.start()

    def eureka_urls(self) -> list[str]:
        """Return the URLs of every server."""
        return list(dict.fromkeys([*self.lab.eureka_urls, *self.disturbed.eureka_urls]))

    def kill_leader(self) -> str:
        """Send SIGKILL to the operator that leads for the scenario OPERATOR; return its name."""
        holder = self.cluster.leader(Scenario.OPERATOR.namespace)
        self._operators[holder].kill()
        return holder

    def stop_callers(self) -> None:
        """End all calls; those under way are finished and recorded."""
        for client in self._callers:
            client.end_calls()

    def read_brake_notes(self) -> list[str]:
        """Return the notes of the operators' Events on held removals."""
        events = [
            event
            for namespace in {scenario.namespace for scenario in Scenario}
            for event in self.cluster.items(EVENTS, namespace)
        ]
        return [str(event.get("note")) for event in events if event.get("reason") == "Braked"]

    def _lab_of_scenario(self, scenario: Scenario) -> Lab:
        return self.disturbed if scenario is Scenario.PEER else self.lab

    def _deploy_subject(self, subject: Subject) -> None:
        namespace = subject.scenario.namespace
        self.cluster.apply(DEPLOYMENTS, subject.deployment(self.settings.replicas, self.settings.drain))
        self.cluster.apply_service(namespace, subject.name, PORT)
        self.cluster.apply_syncer(namespace, subject.name, **subject.syncer_spec)

    def _wait_until_listed(self) -> None:
        """Wait until every server's cached lists have every pod."""
        for subject in self.settings.subjects:
            for url in self._lab_of_scenario(subject.scenario).eureka_urls:

                def are_listed(url: str = url, subject: Subject = subject) -> bool:
                    return _count_listed_up(url, subject.name) == self.settings.replicas

                wait_for(are_listed, f"{subject.name} to be listed at {url}", LONGEST_LIST_DELAY_SECONDS)
        say(f"{len(self.settings.subjects)} applications are registered")

    def _start_callers(self) -> None:
        for eureka in {self.lab, self.disturbed}:
            names = [
                one.name for one in self.settings.subjects if self._lab_of_scenario(one.scenario) is eureka
            ]
            pairs: Iterable[tuple[list[str], list[str]]] = [(names, names)]
            if not self.settings.shares_eureka:
                pairs = [(names, []), ([], names)]
            settings = self.settings.client_settings
            started = [
                (self.launch_caller(eureka, f"caller-{next(_file_numbers)}", **settings), *pair)
                for pair in pairs
            ]
            for client, balanced, feign in started:
                client.wait_until_ready()
                for name in names:
                    wait_for(
                        self._make_all_instances_known_check(client, name),
                        f"{name} in a caller",
                        LONGEST_LIST_DELAY_SECONDS,
                    )
                file = self.lab.directory / f"calls-{next(_file_numbers)}.csv"
                client.begin_calls(balanced, feign, self.settings.calls_per_second, file)
                self.call_files.append(file)
                self._callers.append(client)
        say("all applications are being called")

    def _make_all_instances_known_check(self, client: SpringClient, name: str) -> Callable[[], bool]:
        return lambda: len(client.get(f"/instances/{name}").json()) == self.settings.replicas


def _count_listed_up(url: str, application: str) -> int:
    """Return how many instances a server lists as UP to its clients."""
    with requests.Session() as session:
        session.trust_env = False
        answer = session.get(
            f"{url}/apps/{application.upper()}", headers={"Accept": "application/json"}, timeout=10
        )
    if answer.status_code == 404:
        time.sleep(0.2)  # cached, too
        return 0
    answer.raise_for_status()
    found: list[dict[str, Any]] = answer.json()["application"]["instance"]
    return sum(one["status"] == "UP" for one in found)

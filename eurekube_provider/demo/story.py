"""The steps of the demo; each announces its action, and checks the result.

The first check that fails ends the story.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml
from rich.console import Console

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import is_ready
from eurekube_provider.demo.board import EndpointTable
from eurekube_provider.demo.stage import APP, NAMESPACE, PORT, Object, OperatorProcess, Stage, StoryFailed
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import ENDPOINT_SLICES, NAMESPACES, PODS, SYNCERS, ApiResource, KubeAccess

OPERATOR_NAMESPACE, OPERATOR_SERVICE_ACCOUNT = "eurekube-system", "eurekube-operator"
_SERVICE_ACCOUNTS = ApiResource("", "v1", "serviceaccounts")
_POLL_SECONDS = 0.02
_RENEWAL_POLL_SECONDS = 0.5
_RENEW_INTERVAL_SECONDS = 1.0
_MAX_LOG_LINES = 15

_CHECK_TIMEOUT_SECONDS = 60.0
"""Seconds that each check waits at most, also on a busy machine."""

_Probe = Callable[[], object]
"""A function that looks at Kubernetes or Eureka: it returns whether a condition holds, or what it sees."""

ABSENCE_PROOF_SECONDS = 2.0
"""Seconds for which removed instances must stay away from Eureka while the operator runs."""

STEP_DISPLAY_SECONDS = 0.5
"""Seconds for which the table shows each step, while a lease is waited for anyway."""

_FOREIGN_SERVER_VARIABLE_PATTERN = re.compile(r"(EUREKA_|EUREKUBE_|PULUMI_|KUBE)|.*_proxy$", re.IGNORECASE)
"""Environment variables that lead to other servers than the demo's, or around these."""


def environment_without_foreign_servers() -> dict[str, str]:
    """Return this process's environment without variables that lead to other servers than the demo's."""
    return {
        key: value for key, value in os.environ.items() if not _FOREIGN_SERVER_VARIABLE_PATTERN.match(key)
    }


class Story:
    """The demo's steps on one stage, with the table of the third step as an SVG where a file is given."""

    def __init__(self, stage: Stage, picture: Path | None = None) -> None:
        self.check_count = 0
        self._stage = stage
        self._picture = picture
        self._access = KubeAccess.load(stage.kubeconfig)
        self._peers = Peers(Connection.parse(list(stage.eureka_urls)))
        self._board: EndpointTable | None = None
        self._operator: OperatorProcess | None = None
        self._measured_milliseconds: list[float] = []
        self._renewed_at = 0.0
        self._billing: Instance | None = None

    def close(self) -> None:
        """Stop the operator, and close the connections to Eureka."""
        if self._operator is not None:
            self._operator.stop()
        self._peers.close()

    def deploy_and_start_operator(self) -> None:
        """Deploy the program and start the operator, before the table has anything to show."""
        for line in self._stage.intro_lines:
            self._print_line(line)
        self._print_line(f"\n1. The program is deployed by {self._stage.deploy_tool}")
        began = time.monotonic()
        self._stage.deploy()
        seconds = time.monotonic() - began
        deployed = f"in {seconds:.1f} s: CRDs, the operator's rights, a syncer, a registration"
        self._check_eventually(deployed, lambda: self._read_syncer() is not None)
        self._check_eventually("the stack's registration stands in Eureka", self._find_and_remember_billing)
        with_token = self._write_operator_kubeconfig(self._stage.kubeconfig.with_name("operator.kubeconfig"))
        self._operator = self._stage.start_operator(
            {
                "EUREKA_URL": ",".join(self._stage.eureka_urls),
                "KUBECONFIG": str(with_token),
                "POD_NAMESPACE": OPERATOR_NAMESPACE,
                "WEB_ADDRESS": "127.0.0.1:0",
            }
        )
        self._check_eventually(
            "the operator is ready, a process with the token of its ServiceAccount",
            self._is_operator_ready_else_renew_billing,
        )

    def play_steps(self, *, keep: bool) -> None:
        """Play the steps from the first pod to the deleted syncer; to ``keep`` all pods, stop before that."""
        live = Console() if sys.stdout.isatty() else None
        uid = self._access.get(NAMESPACES.path(name="kube-system"))["metadata"]["uid"]
        with EndpointTable(self._access, self._peers, NAMESPACE, APP, PORT, uid[:8], live) as board:
            self._board, self._measured_milliseconds = board, board.measured_milliseconds
            try:
                self._play_pod_steps(board)
                if not keep:
                    self._delete_syncer()
            finally:
                self._board = None

    def _play_pod_steps(self, board: EndpointTable) -> None:
        workload = self._stage.workload
        if self._billing is not None:
            board.add_stack_registration(self._billing.application.lower(), self._billing)

        self._print_line(f"2. A Service {APP} with 2 pods appears as {APP.upper()} in Eureka")
        workload.start(2)
        self._check_statuses_in_eureka(
            "2 pods at 10.0.0.1 and 10.0.0.2 are UP", {"10.0.0.1": "UP", "10.0.0.2": "UP"}
        )

        self._print_line("3. It is scaled to 5 pods")
        workload.scale(5)
        self._check_statuses_in_eureka("5 pods are UP", self._wait_for_ready_endpoints(5))
        if self._picture is not None:
            self._picture.write_text(board.render_svg("3. It is scaled to 5 pods"), encoding="utf-8")

        self._print_line("4. One pod becomes unready, and ready again")
        pod = self._list_pods()[0]
        workload.set_ready(pod, ready=False)
        self._check_statuses_in_eureka(
            "its instance is DOWN", self._wait_for_ready_endpoints(4) | {pod["status"]["podIP"]: "DOWN"}
        )
        workload.set_ready(pod, ready=True)
        self._check_statuses_in_eureka("and UP again", self._wait_for_ready_endpoints(5))

        self._print_line("5. The pods are rolled: new ones come, the old ones go")
        old = {item["metadata"]["name"] for item in self._list_pods()}
        workload.roll()
        self._wait_until(
            lambda: not old & {item["metadata"]["name"] for item in self._list_pods()}, "the old pods to go"
        )
        self._check_statuses_in_eureka(
            "only the new pods are there, all UP", self._wait_for_ready_endpoints(5)
        )

        seconds = self._stage.renewal_proof_seconds
        self._print_line(f"6. The operator alone renews the stack's registration, {seconds:.0f} s long")
        renewals = self._count_renewals(board)
        self._check_eventually(f"it has outlived its lease, renewed {renewals} times", lambda: renewals > 2)

    def _delete_syncer(self) -> None:
        self._print_line("7. The syncer is deleted")
        self._access.request("DELETE", SYNCERS.path(NAMESPACE, APP))
        self._check_statuses_in_eureka("its instances are gone", {})
        self._check_eventually("and so is the syncer", lambda: self._read_syncer() is None)
        self._check_eventually(
            "the stack's registration is still there", lambda: self._read_billing() is not None
        )

    def take_program_down(self) -> None:
        """Take the program down, and check that none of its instances is left."""
        self._print_line("8. The program is taken down while the operator runs")
        self._stage.take_down()
        self._stage.pause(ABSENCE_PROOF_SECONDS)
        self._check_eventually("nothing of it is left in Eureka", lambda: self._read_billing() is None)

    def print_summary(self) -> None:
        """Print the time that the changes took."""
        if self._measured_milliseconds:
            median, most = statistics.median(self._measured_milliseconds), max(self._measured_milliseconds)
            self._print_line(
                f"\n{len(self._measured_milliseconds)} changes: from the EndpointSlice to Eureka "
                f"{median:.1f} ms in the median, {most:.1f} ms at most"
            )

    def operator_port(self) -> int | None:
        """The port of the operator's web server; None until it listens."""
        found = re.search(
            r'"web is served", "port": (\d+)', self._operator.read_output() if self._operator else ""
        )
        return int(found[1]) if found else None

    def _write_operator_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that has only the token of the ServiceAccount that the program made."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        account = _SERVICE_ACCOUNTS.path(OPERATOR_NAMESPACE, OPERATOR_SERVICE_ACCOUNT, "token")
        token = self._access.request("POST", account, body=request)["status"]["token"]
        document = yaml.safe_load(self._stage.kubeconfig.read_text(encoding="utf-8"))
        document["users"] = [{"name": user["name"], "user": {"token": token}} for user in document["users"]]
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    def _is_operator_ready_else_renew_billing(self) -> bool:
        """Return whether the operator, which must not end, is ready; renew the stack's BILLING meanwhile."""
        if self._operator is None or self._operator.exit_code is not None:
            raise StoryFailed(f"the operator has ended\n{self._operator_log_end()}")
        if "operator is ready" in self._operator.read_output():
            return True
        if self._billing is not None and time.monotonic() - self._renewed_at > _RENEW_INTERVAL_SECONDS:
            self._peers.renew(self._billing)  # a lease of seconds may be shorter than the operator's start
            self._renewed_at = time.monotonic()
        return False

    def _list_pods(self) -> list[Object]:
        """Return the Service's pods that are not being deleted, sorted by address."""
        items = self._access.get(PODS.path(NAMESPACE), {"labelSelector": f"app={APP}"})["items"]
        staying = [item for item in items if "deletionTimestamp" not in item["metadata"]]
        return sorted(staying, key=lambda item: str(item["status"].get("podIP", "")))

    def _wait_for_ready_endpoints(self, count: int) -> dict[str, str]:
        """Wait for ``count`` ready endpoints; return the statuses that Eureka must show, by address."""
        query = {"labelSelector": f"kubernetes.io/service-name={APP}"}
        addresses: list[str] = []

        def are_ready() -> bool:
            slices = self._access.get(ENDPOINT_SLICES.path(NAMESPACE), query)["items"]
            addresses[:] = [
                endpoint["addresses"][0]
                for item in slices
                for endpoint in item.get("endpoints") or ()
                if is_ready(endpoint)
            ]
            return len(addresses) == count

        self._wait_until(are_ready, f"{count} ready endpoints")
        return dict.fromkeys(addresses, "UP")

    def _check_statuses_in_eureka(self, what: str, expected: Mapping[str, str]) -> None:
        """Check that Eureka shows exactly these addresses of the application, with these statuses."""

        def statuses_by_address() -> dict[str, str]:
            return {one.ip_address: one.status.value for one in self._stage.instances(APP.upper())}

        if self._board is not None:
            self._board.wait_until_settled(self._stage.pause)
        self._check_eventually(what, lambda: statuses_by_address() == expected, statuses_by_address)
        self._stage.pause(STEP_DISPLAY_SECONDS)

    def _check_eventually(self, what: str, holds: _Probe, observe: _Probe = str) -> None:
        self._wait_until(holds, what, observe)
        self.check_count += 1
        self._print_line(f"  ok  {what}")

    def _wait_until(self, holds: _Probe, what: str, observe: _Probe = str) -> None:
        deadline = time.monotonic() + _CHECK_TIMEOUT_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                detail = f"; seen: {found}" if (found := observe()) != "" else ""
                raise StoryFailed(
                    f"{what}: not within {_CHECK_TIMEOUT_SECONDS:.0f} s{detail}\n{self._operator_log_end()}"
                )
            self._stage.pause(_POLL_SECONDS)

    def _operator_log_end(self) -> str:
        lines = self._operator.read_output().splitlines()[-_MAX_LOG_LINES:] if self._operator else []
        return (
            "\n".join(["the end of the operator's log:", *(f"  {line}" for line in lines)]) if lines else ""
        )

    def _read_syncer(self) -> Object | None:
        try:
            return self._access.get(SYNCERS.path(NAMESPACE, APP))
        except KubernetesError as error:
            if error.status_code == 404:
                return None
            raise

    def _find_and_remember_billing(self) -> bool:
        self._billing = next(iter(self._stage.instances("BILLING")), None)
        self._renewed_at = time.monotonic()
        return self._billing is not None

    def _read_billing(self) -> Instance | None:
        return self._peers.read(*self._billing.key) if self._billing is not None else None

    def _count_renewals(self, board: EndpointTable) -> int:
        """Read BILLING, which must not lapse, twice a second, and return how often it was renewed."""
        renewals: set[int] = set()
        while True:
            held, seconds = self._read_billing(), time.monotonic() - self._renewed_at
            if held is None:
                raise StoryFailed(f"BILLING lapsed within {seconds:.0f} s\n{self._operator_log_end()}")
            renewals.add(held.lease_ends_ms or 0)
            board.set_note("billing", f"{seconds:.0f} s")
            if seconds >= self._stage.renewal_proof_seconds:
                return len(renewals) - 1
            self._stage.pause(_RENEWAL_POLL_SECONDS)

    def _print_line(self, line: str) -> None:
        if self._board is not None:
            self._board.print_line(line)
        else:
            print(line, flush=True)

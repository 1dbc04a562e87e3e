"""The demo's table of endpoints in Kubernetes and Eureka, with the milliseconds that each change takes.

A terminal shows a live table, any other output plain lines, from the same observations. Kubernetes is
watched; Eureka is polled for each instance, past its caches.
"""

import io
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.identity import pod_instance_id
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import ENDPOINT_SLICES, KubeAccess
from eurekube_provider.kube.reflector import Reflector

_POLL_SECONDS = 0.004
_SETTLED_POLL_SECONDS = 0.25
_GONE_ROW_DISPLAY_SECONDS = 8.0
_SETTLE_TIMEOUT_SECONDS = 10.0


@dataclass(slots=True)
class Row:
    """One endpoint, or one registration of a stack, as Kubernetes and as Eureka show it.

    :ivar changed_at: when the state in Kubernetes changed last.
    :ivar settled_at: when Eureka showed that change; None before.
    """

    name: str
    instance_id: str
    address: str = ""
    kubernetes_state: str = ""
    eureka_status: str = ""
    changed_at: float = 0.0
    settled_at: float | None = None
    note: str = ""


_EXPECTED_STATUS_BY_STATE = {"ready": "UP", "not ready": "DOWN", "gone": "-"}


class EndpointTable:
    """An observer of one application in Kubernetes and Eureka, which runs within its context."""

    def __init__(
        self,
        access: KubeAccess,
        peers: Peers,
        namespace: str,
        app: str,
        port: int,
        cluster: str,
        live: Console | None,
    ) -> None:
        self._peers = peers
        self._namespace, self._app, self._port, self._cluster = namespace, app, port, cluster
        self._rows: dict[str, Row] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._reflector = Reflector(
            access, ENDPOINT_SLICES, lambda item, _: item, self._update_from_slice, namespace
        )
        self._poller = threading.Thread(target=self._poll_eureka_until_stopped, name="board", daemon=True)
        self._live = (
            Live(console=live, refresh_per_second=10, get_renderable=self._build_table) if live else None
        )
        self.measured_milliseconds: list[float] = []
        """Milliseconds from each change in Kubernetes until Eureka showed it."""

    def __enter__(self) -> Self:
        self._reflector.start()
        self._poller.start()
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._reflector.stop()
        self._poller.join(timeout=5.0)
        if self._live:
            self._live.stop()

    def print_line(self, line: str) -> None:
        """Write a line, above the table where there is one."""
        if self._live:
            self._live.console.print(line, highlight=False)
        else:
            print(line, flush=True)

    def wait_until_settled(self, pause: Callable[[float], None]) -> None:
        """Wait until Kubernetes and Eureka show the same of every endpoint, or for ten seconds."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            with self._lock:
                if all(
                    row.settled_at is not None or row.kubernetes_state == "(stack)"
                    for row in self._rows.values()
                ):
                    return
            pause(0.02)

    def add_stack_registration(self, name: str, instance: Instance) -> None:
        """Show a registration for which no Kubernetes object exists."""
        with self._lock:
            self._rows[name] = Row(
                name,
                instance.instance_id,
                instance.ip_address,
                kubernetes_state="(stack)",
                settled_at=time.monotonic(),
            )

    def render_svg(self, title: str) -> str:
        """Return the current table as an SVG that loads no other files."""
        screen = Console(record=True, width=75, file=io.StringIO())
        screen.print(self._build_table(title))
        drawn = screen.export_svg(title="eurekube demo")
        drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
        return drawn.replace("Fira Code", "ui-monospace, DejaVu Sans Mono, Menlo")

    def set_note(self, name: str, text: str) -> None:
        """Show a remark beside a registration."""
        with self._lock:
            if name in self._rows:
                self._rows[name].note = text

    def _update_from_slice(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        now = time.monotonic()
        before, after = self._endpoint_states(old), self._endpoint_states(new)
        with self._lock:
            for pod in {*before, *after}:
                state, address = after.get(pod, ("gone", before.get(pod, ("", ""))[1]))
                row = self._rows.get(pod)
                if row is None:
                    if state == "gone":
                        continue
                    instance_id = pod_instance_id(pod, self._namespace, self._cluster, self._app, self._port)
                    row = self._rows[pod] = Row(pod, instance_id, eureka_status="-")
                row.address = address or row.address
                if row.kubernetes_state != state:
                    row.kubernetes_state, row.changed_at, row.settled_at = state, now, None

    def _endpoint_states(self, item: dict[str, Any] | None) -> dict[str, tuple[str, str]]:
        labels = ((item or {}).get("metadata") or {}).get("labels") or {}
        if item is None or labels.get("kubernetes.io/service-name") != self._app:
            return {}
        states = {}
        for endpoint in item.get("endpoints") or ():
            conditions = endpoint["conditions"]
            leaving = conditions.get("terminating")
            state = "gone" if leaving else "ready" if conditions.get("ready") else "not ready"
            states[endpoint["targetRef"]["name"]] = (state, endpoint["addresses"][0])
        return states

    def _poll_eureka_until_stopped(self) -> None:
        settled_asked_at = 0.0
        while not self._stopped.wait(_POLL_SECONDS):
            now = time.monotonic()
            with self._lock:
                rows = [row for row in self._rows.values() if row.settled_at is None]
                if now - settled_asked_at >= _SETTLED_POLL_SECONDS:
                    settled_asked_at = now
                    rows = list(self._rows.values())
            for row in rows:
                application = self._app if row.kubernetes_state != "(stack)" else row.name
                try:
                    held = self._peers.read(application.upper(), row.instance_id)
                except RegistryError:
                    continue
                self._update_status(row, held.status.value if held else "-")

    def _update_status(self, row: Row, status: str) -> None:
        now = time.monotonic()
        with self._lock:
            row.eureka_status = status
            expected = _EXPECTED_STATUS_BY_STATE.get(row.kubernetes_state)
            if expected == status and row.settled_at is None:
                row.settled_at = now
                took = (now - row.changed_at) * 1000
                self.measured_milliseconds.append(took)
                line = f"    {row.name:<28} {row.address:<12} {row.kubernetes_state:<10} Eureka {status:<6}"
                if not self._live:
                    self.print_line(f"{line} {took:6.1f} ms")
            if (
                row.kubernetes_state == "gone"
                and row.settled_at is not None
                and now - row.settled_at > _GONE_ROW_DISPLAY_SECONDS
            ):
                self._rows.pop(row.name, None)

    def _build_table(self, title: str = "") -> Table:
        table = Table(title=title or None, title_justify="left", expand=False)
        for column in ("Endpoint", "Address", "Kubernetes", "Eureka"):
            table.add_column(column, min_width=10)
        table.add_column("ms", justify="right", min_width=7)
        with self._lock:
            for row in sorted(
                self._rows.values(), key=lambda row: (row.kubernetes_state == "(stack)", row.name)
            ):
                style = {"UP": "green", "DOWN": "yellow"}.get(row.eureka_status, "dim")
                took = row.note
                if row.kubernetes_state != "(stack)" and row.settled_at is not None:
                    took = f"{(row.settled_at - row.changed_at) * 1000:.1f}"
                cells = (row.name, row.address, row.kubernetes_state, row.eureka_status, took)
                table.add_row(*cells, style=style)
        return table

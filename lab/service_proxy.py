"""A played kube-proxy: a Service's address leads to one of its ready endpoints.

The kernel of a network of the lab's own has no rules for Services, so each port of a Service with a cluster
IP is a listener at that address. As with kube-proxy, a connection goes to any ready endpoint and stays there
however the endpoints change; no connection is tried twice; and where no endpoint is ready, a call is refused
at once.
"""

import random
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eurekube_provider.core.objects import SERVICE_NAME_LABEL
from eurekube_provider.kube.access import ENDPOINT_SLICES, SERVICES, KubeAccess
from eurekube_provider.kube.reflector import Reflector
from lab.errors import LabError

Object = dict[str, Any]
AddressAndPort = tuple[str, int]
_CONNECT_TIMEOUT_SECONDS = 2.0
_CHUNK_BYTES = 65536
_IP_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class EndpointChange:
    """A change of an endpoint's readiness in a Service.

    :ivar at: when the proxy saw it, in seconds since 1970.
    """

    at: float
    service: str
    address: str
    is_ready: bool


class ServiceProxy:
    """A proxy for all Services of the cluster that have an address: `start`, `stop`.

    :ivar changes: changes of all Services' endpoints, also of those without an address, in their order.
    """

    def __init__(self, kubeconfig: Path) -> None:
        access = KubeAccess.load(kubeconfig)
        self.changes: list[EndpointChange] = []
        self._lock = threading.Lock()
        self._services: dict[tuple[str, str], Object] = {}
        self._slices: dict[tuple[str, str], Object] = {}
        self._ready: dict[tuple[str, str], frozenset[str]] = {}
        self._listeners: dict[AddressAndPort, _Listener] = {}
        self._reflectors = [
            Reflector(access, SERVICES, lambda item, _: item, self._apply_service_change),
            Reflector(access, ENDPOINT_SLICES, lambda item, _: item, self._apply_slice_change),
        ]

    def start(self) -> None:
        """Start to watch Services and slices, and to listen at their addresses."""
        for reflector in self._reflectors:
            reflector.start()

    def stop(self) -> None:
        """Accept no more connections."""
        for reflector in self._reflectors:
            reflector.stop()
        with self._lock:
            for listener in self._listeners.values():
                listener.close()
            self._listeners.clear()

    def _apply_service_change(self, old: Object | None, new: Object | None) -> None:
        with self._lock:
            for item in filter(None, (new or old,)):
                key = _object_key(item)
                if new is None:
                    self._services.pop(key, None)
                else:
                    self._services[key] = item
                self._update_listeners(key)

    def _apply_slice_change(self, old: Object | None, new: Object | None) -> None:
        with self._lock:
            for item in filter(None, (new or old,)):
                if new is None:
                    self._slices.pop(_object_key(item), None)
                else:
                    self._slices[_object_key(item)] = item
                name = (item["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL, "")
                self._update_listeners((item["metadata"]["namespace"], name))

    def _update_listeners(self, key: tuple[str, str]) -> None:
        """Update the listeners of a Service to its endpoints."""
        slices = [
            item
            for (namespace, _), item in self._slices.items()
            if (namespace, (item["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL)) == key
        ]
        self._record_changes(key, frozenset(address for item in slices for address in _ready_addresses(item)))
        service = self._services.get(key)
        wanted = _endpoints_by_address_and_port(service, slices) if service else {}
        mine = {place for place, listener in self._listeners.items() if listener.service == key}
        for place in mine - {place for place, targets in wanted.items() if targets}:
            self._listeners.pop(place).close()
        for place, targets in wanted.items():
            if targets and place not in self._listeners:
                self._listeners[place] = _Listener(key, place)
            if targets:
                self._listeners[place].targets = targets

    def _record_changes(self, key: tuple[str, str], ready: frozenset[str]) -> None:
        before = self._ready.get(key, frozenset())
        self._ready[key] = ready
        for address in sorted(before ^ ready):
            self.changes.append(EndpointChange(time.time(), key[1], address, address in ready))


class _Listener:
    """One port of one Service, while the Service has a ready endpoint."""

    def __init__(self, service: tuple[str, str], place: AddressAndPort) -> None:
        self.service = service
        self.targets: list[AddressAndPort] = []
        add_loopback_address(place[0])
        self._socket = socket.create_server(place, backlog=256)
        threading.Thread(target=self._accept_until_closed, name=f"service-{service[1]}", daemon=True).start()

    def close(self) -> None:
        """Refuse new connections; present ones go on."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept_until_closed(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            target = random.choice(self.targets)  # noqa: S311 - as the kernel's rules choose
            threading.Thread(target=_forward_connection, args=(connection, target), daemon=True).start()


def _forward_connection(connection: socket.socket, target: AddressAndPort) -> None:
    with connection:
        try:
            server = socket.create_connection(target, _CONNECT_TIMEOUT_SECONDS)
        except OSError:
            return  # which its caller sees as a broken connection
        with server:
            server.settimeout(None)
            for end in (connection, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=_copy_bytes, args=(server, connection), daemon=True)
            back.start()
            _copy_bytes(connection, server)
            back.join()


def _copy_bytes(source: socket.socket, target: socket.socket) -> None:
    """Carry bytes one way, and then their end."""
    with suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def add_loopback_address(address: str) -> None:
    """Make this network answer for an address, as every node does for those of Services."""
    done = subprocess.run(
        ["ip", "address", "replace", f"{address}/32", "dev", "lo"],
        capture_output=True,
        text=True,
        timeout=_IP_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise LabError(f"the address {address} cannot be had: {done.stderr.strip()}")


def _object_key(item: Object) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def _ready_addresses(item: Mapping[str, Any]) -> list[str]:
    """Return the addresses of a slice's ready endpoints, the first address of each."""
    return [
        one["addresses"][0]
        for one in item.get("endpoints") or ()
        if (one.get("conditions") or {}).get("ready") is not False
    ]


def _endpoints_by_address_and_port(
    service: Object, slices: list[Object]
) -> dict[AddressAndPort, list[AddressAndPort]]:
    """Return the endpoints of each address and port of a Service; ports of Service and slice match by
    name.
    """
    address = service["spec"].get("clusterIP")
    if not address or address == "None":
        return {}
    return {
        (address, int(port["port"])): [
            (target, int(one["port"]))
            for item in slices
            for one in item.get("ports") or ()
            if (one.get("name") or "") == (port.get("name") or "")
            for target in _ready_addresses(item)
        ]
        for port in service["spec"].get("ports") or ()
    }

"""The choice of the port of a Service or of an EndpointSlice that callers use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from eurekube_provider.core.condition_types import SyncerCondition
from eurekube_provider.core.model import Port, shared_port
from eurekube_provider.core.objects import Object
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.syncer import PortReference, Syncer

DISABLED_SECURE_PORT = shared_port(443, enabled=False)

PortNumberField = Literal["port", "nodePort", "hostPort"]
"""The field of a port with the number that is registered: in a Service's spec, or in an EndpointSlice."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The two ports of an instance in Eureka, and what else the registration says of ports.

    :param health: scheme and number of the health check's own port.
    :param metadata: metadata keys, each with the number of its port.
    :param missing_phrases: the metadata and the health check that lack their port, each worded for a
        sentence.
    """

    plain: Port
    secure: Port = DISABLED_SECURE_PORT
    health: tuple[str, int] | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    missing_phrases: tuple[str, ...] = ()

    @property
    def enabled_numbers(self) -> frozenset[int]:
        """The port numbers that callers may use."""
        return frozenset(one.number for one in (self.plain, self.secure) if one.enabled)


def choose_ports(
    ports: Iterable[Object] | None,
    port: PortReference | None,
    secure_port: PortReference | None,
    where: str,
    number_field: PortNumberField = "port",
) -> Ports | Problem:
    """Choose the ports that callers use.

    Without a secure port: the one that ``port`` names; else the only TCP port; else the one named ``http``.
    With a secure port, callers use https (Spring does whenever the secure port is enabled): the plain port is
    then the one that ``port`` names, else the one named ``http``, else disabled, with the secure port's
    number.

    :param ports: ``ports`` of an EndpointSlice or of a Service's spec.
    :param where: the object that the ports belong to, for the message.
    :param number_field: which number of the chosen port is registered.
    """
    chosen = choose_port_objects(ports, port, secure_port, where)
    if isinstance(chosen, Problem):
        return chosen
    if secure_port is not None and port is None and chosen[0] is not None and not chosen[0].get(number_field):
        chosen = None, chosen[1]  # nobody asked for it
    for item in chosen:
        if item is not None and not item.get(number_field):
            return Problem(
                SyncerCondition.NO_PORT,
                f"{where}: port {item['port']} has no {number_field}; {_MISSING_NUMBER_HINTS[number_field]}",
            )
    plain, secure = [0 if item is None else int(item[number_field]) for item in chosen]
    if not secure:
        return Ports(shared_port(plain, enabled=True))
    if not plain or chosen[0] is chosen[1]:
        return Ports(shared_port(secure, enabled=False), shared_port(secure, enabled=True))
    return Ports(shared_port(plain, enabled=True), shared_port(secure, enabled=True))


def with_metadata_and_health_ports(
    chosen: Ports,
    ports: Iterable[Object] | None,
    syncer: Syncer,
    number_field: PortNumberField = "port",
) -> Ports:
    """Return the chosen ports with those that the syncer's metadata and its health check name.

    :param ports: as for :func:`choose_ports`; ``number_field`` as well.
    """
    if not syncer.metadata_from_ports and syncer.health_check_port is None:
        return chosen
    tcp = [item for item in ports or () if _is_tcp(item) and item.get(number_field)]
    by_name = {item.get("name"): str(item[number_field]) for item in tcp}
    wanted = syncer.metadata_from_ports.items()
    missing = [f"{key} (TCP port {name})" for key, name in wanted if name not in by_name]
    health = None
    if syncer.health_check_port is not None:
        found = _find_port(tcp, syncer.health_check_port, "healthCheckPort", "")
        if isinstance(found, Problem):
            missing.append(f"the health check (TCP port {syncer.health_check_port})")
        else:
            secure = chosen.secure.enabled and found[number_field] == chosen.secure.number
            is_secure = secure or str(found.get("appProtocol")).lower() == "https"
            health = ("https" if is_secure else "http", int(found[number_field]))
    metadata = tuple((key, by_name[name]) for key, name in wanted if name in by_name)
    return replace(chosen, health=health, metadata=metadata, missing_phrases=tuple(missing))


def choose_port_objects(
    ports: Iterable[Object] | None,
    port: PortReference | None,
    secure_port: PortReference | None,
    where: str,
) -> tuple[Object | None, Object | None] | Problem:
    """Choose as :func:`choose_ports` does, and return the plain and the secure port as the object has them.

    One of the two is None where callers use only the other.
    """
    tcp = [item for item in ports or () if _is_tcp(item)]
    plain = _plain_port(tcp, port, where, has_secure=secure_port is not None)
    if isinstance(plain, Problem):
        return plain
    if secure_port is None:
        return (plain, None) if plain else Problem(SyncerCondition.NO_PORT, f"{where} has no TCP port")
    secure = _find_port(tcp, secure_port, "securePort", where)
    return secure if isinstance(secure, Problem) else (plain, secure)


def has_tcp_port(ports: Iterable[Object], wanted: PortReference | None) -> bool:
    """Return whether ``ports`` has a TCP port of this name or number; any TCP port will do for None."""
    return any(
        wanted is None or str(wanted) in (item.get("name"), str(item["port"]))
        for item in ports
        if _is_tcp(item)
    )


def with_target_ports(ports: Iterable[Object]) -> list[Object]:
    """Return a Service's ports with their target port, a number or a name, in place of their number."""
    return [{**item, "port": item.get("targetPort") or item.get("port")} for item in ports]


def _is_tcp(item: Object) -> bool:
    return item.get("protocol", "TCP") == "TCP" and bool(item.get("port"))


def _plain_port(
    tcp: list[Object], wanted: PortReference | None, where: str, *, has_secure: bool
) -> Object | Problem | None:
    if wanted is not None:
        return _find_port(tcp, wanted, "port", where)
    if len(tcp) == 1 and not has_secure:
        return tcp[0]
    for item in tcp:
        if item.get("name") == "http":
            return item
    if has_secure or not tcp:
        return None
    return Problem(
        SyncerCondition.AMBIGUOUS_PORT,
        f"{where} has several ports ({_format_ports(tcp)}) and none is named http",
        "name one in spec.port",
    )


def _find_port(tcp: list[Object], wanted: PortReference, field: str, where: str) -> Object | Problem:
    for item in tcp:
        if item.get("name") == wanted:
            return item
    for item in tcp:
        if str(item["port"]) == str(wanted):
            return item
    there = f"there are {_format_ports(tcp)}" if tcp else "it has no TCP port"
    return Problem(
        SyncerCondition.NO_PORT, f"{where} has no TCP port {wanted}, which spec.{field} names; {there}"
    )


_MISSING_NUMBER_HINTS = {
    "port": "each port has one",
    "nodePort": "only Services of type NodePort or LoadBalancer do",
    "hostPort": "the pods' containers must give one, at an address that callers can reach",
}


def _format_ports(tcp: list[Object]) -> str:
    return ", ".join(f"{item.get('name') or '(unnamed)'}={item['port']}" for item in tcp)

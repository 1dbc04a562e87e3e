"""The choice of the port of a Service or of an EndpointSlice that callers use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from eurekube_provider.core.condition_types import ConditionType
from eurekube_provider.core.model import Port, shared_port
from eurekube_provider.core.objects import Object
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.syncer import PortReference

NO_SECURE_PORT = shared_port(443, enabled=False)


@dataclass(frozen=True, slots=True)
class Ports:
    """The two ports of an instance, as Eureka has them."""

    plain: Port
    secure: Port = NO_SECURE_PORT


def choose_ports(
    ports: Iterable[Object] | None,
    port: PortReference | None,
    secure_port: PortReference | None,
    where: str,
    number: Literal["port", "nodePort"] = "port",
) -> Ports | Problem:
    """Choose the ports that callers use.

    Without a secure port: the one that ``port`` names; else the only TCP port; else the one named ``http``.
    With one, callers use https (Spring does whenever the secure port is enabled): the plain port is then the
    one that ``port`` names, else the one named ``http``, else disabled, with the secure port's number.

    :param ports: ``ports`` of an EndpointSlice or of a Service's spec.
    :param where: what they belong to, for the message.
    :param number: which number of the chosen port is registered.
    """
    tcp = [item for item in ports or () if item.get("protocol", "TCP") == "TCP" and item.get("port")]
    plain = _plain_port(tcp, port, where, has_secure=secure_port is not None)
    if isinstance(plain, Problem):
        return plain
    if secure_port is None:
        chosen = (
            _number(plain, number, where)
            if plain
            else Problem(ConditionType.NO_PORT, f"{where} has no TCP port")
        )
        return chosen if isinstance(chosen, Problem) else Ports(shared_port(chosen, enabled=True))
    secure = _port_named(tcp, secure_port, "securePort", where)
    secure_number = secure if isinstance(secure, Problem) else _number(secure, number, where)
    if isinstance(secure_number, Problem):
        return secure_number
    if plain is None or plain is secure:
        return Ports(shared_port(secure_number, enabled=False), shared_port(secure_number, enabled=True))
    plain_number = _number(plain, number, where)
    if isinstance(plain_number, Problem):
        return plain_number
    return Ports(shared_port(plain_number, enabled=True), shared_port(secure_number, enabled=True))


def _plain_port(
    tcp: list[Object], wanted: PortReference | None, where: str, *, has_secure: bool
) -> Object | Problem | None:
    if wanted is not None:
        return _port_named(tcp, wanted, "port", where)
    if len(tcp) == 1 and not has_secure:
        return tcp[0]
    for item in tcp:
        if item.get("name") == "http":
            return item
    if has_secure or not tcp:
        return None
    return Problem(
        ConditionType.AMBIGUOUS_PORT,
        f"{where} has several ports ({_listed(tcp)}) and none is named http",
        "name one in spec.port",
    )


def _port_named(tcp: list[Object], wanted: PortReference, field: str, where: str) -> Object | Problem:
    for item in tcp:
        if item.get("name") == wanted:
            return item
    for item in tcp:
        if str(item["port"]) == str(wanted):
            return item
    there = f"there are {_listed(tcp)}" if tcp else "it has no TCP port"
    return Problem(
        ConditionType.NO_PORT, f"{where} has no TCP port {wanted}, which spec.{field} names; {there}"
    )


def _number(item: Object, field: str, where: str) -> int | Problem:
    if not item.get(field):
        return Problem(
            ConditionType.NO_PORT,
            f"{where}: port {item['port']} has no {field}; only Services of type NodePort or LoadBalancer do",
        )
    return int(item[field])


def _listed(tcp: list[Object]) -> str:
    return ", ".join(f"{item.get('name') or '(unnamed)'}={item['port']}" for item in tcp)

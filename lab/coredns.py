"""A real CoreDNS as a cluster's DNS: it answers for Services from the API server.

Its settings are its plugins' defaults: an answer is valid for five seconds, in its own cache too. It asks no
other DNS server. It listens on port 53 at an address of its own, so it runs only inside a network of the
lab's own.
"""

import socket
from pathlib import Path

from lab.processes import Process
from lab.programs import COREDNS, provide_programs
from lab.service_proxy import add_loopback_address

DNS_ADDRESS = "10.96.0.10"
"""The DNS server's address, the same as in most clusters."""

CLUSTER_DOMAIN = "cluster.local"
DNS_TTL_SECONDS = 5
"""Seconds that an answer is valid, the default of CoreDNS's plugin `kubernetes`."""

_COREFILE_TEMPLATE = """\
.:53 {{
    errors
    cache
    kubernetes {domain} {{
        kubeconfig {kubeconfig} lab
    }}
}}
"""
_READY_TIMEOUT_SECONDS = 60.0
_QUERY_TIMEOUT_SECONDS = 1.0


class CoreDns(Process):
    """The CoreDNS process; it is ready once it answers for the cluster's own Service."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        add_loopback_address(DNS_ADDRESS)
        file = directory / "Corefile"
        file.write_text(_COREFILE_TEMPLATE.format(domain=CLUSTER_DOMAIN, kubeconfig=kubeconfig.absolute()))
        super().__init__(
            COREDNS,
            [provide_programs([COREDNS])[COREDNS], "-conf", file],
            log=directory / "logs" / "coredns.log",
            is_ready=lambda: bool(resolve_name(f"kubernetes.default.svc.{CLUSTER_DOMAIN}")),
            ready_seconds=_READY_TIMEOUT_SECONDS,
        )


def write_resolver_files(namespace: str, directory: Path) -> dict[str, Path]:
    """Write the files that make a pod ask the cluster's DNS; return them by their paths in the pod."""
    files = {
        "resolv.conf": f"search {namespace}.svc.{CLUSTER_DOMAIN} svc.{CLUSTER_DOMAIN} {CLUSTER_DOMAIN}\n"
        f"nameserver {DNS_ADDRESS}\noptions ndots:5\n",
        "nsswitch.conf": "hosts: files dns\n",
    }
    for name, text in files.items():
        (directory / name).write_text(text)
    return {f"/etc/{name}": directory / name for name in files}


def resolve_name(name: str) -> list[str]:
    """Return the IPv4 addresses that the DNS server has for a name; an empty list if it has none or does not
    answer.
    """
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + labels + b"\x00\x00\x01\x00\x01"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(_QUERY_TIMEOUT_SECONDS)
        try:
            asking.connect((DNS_ADDRESS, 53))
            asking.send(query)
            answer = asking.recv(4096)
        except OSError:
            return []
    return _parse_a_records(answer, len(query))


def _parse_a_records(answer: bytes, begin: int) -> list[str]:
    """Return the addresses of a DNS answer's A records."""
    found, position = [], begin
    for _ in range(int.from_bytes(answer[6:8])):
        while answer[position] and answer[position] < 0xC0:
            position += 1 + answer[position]
        position += 2 if answer[position] else 1
        kind, length = int.from_bytes(answer[position : position + 2]), answer[position + 8 : position + 10]
        position += 10
        end = position + int.from_bytes(length)
        if kind == 1:
            found.append(socket.inet_ntoa(answer[position:end]))
        position = end
    return found

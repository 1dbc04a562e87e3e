"""A real CoreDNS, as a cluster's DNS: it answers for Services out of the API server.

Its settings are the defaults of its plugins: an answer out of the cluster is good for five seconds, in its
own cache too. Nobody else's DNS is asked. Needs an address of its own, since the port is the one that
resolvers ask: only inside a network of the lab's own.
"""

import socket
from pathlib import Path

from lab.processes import Process
from lab.programs import COREDNS, provide
from lab.service_proxy import own_address

DNS_ADDRESS = "10.96.0.10"
"""Where most clusters have it."""

DOMAIN = "cluster.local"
TTL_SECONDS = 5
"""The default of CoreDNS's plugin `kubernetes`."""

_CONFIGURATION = """\
.:53 {{
    errors
    cache
    kubernetes {domain} {{
        kubeconfig {kubeconfig} lab
    }}
}}
"""
_READY_SECONDS = 60.0
_LOOK_SECONDS = 1.0


class CoreDns(Process):
    """The server; it is ready once it knows the cluster."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        own_address(DNS_ADDRESS)
        file = directory / "Corefile"
        file.write_text(_CONFIGURATION.format(domain=DOMAIN, kubeconfig=kubeconfig.absolute()))
        super().__init__(
            COREDNS,
            [provide([COREDNS])[COREDNS], "-conf", file],
            log=directory / "logs" / "coredns.log",
            is_ready=lambda: bool(resolved(f"kubernetes.default.svc.{DOMAIN}")),
            ready_seconds=_READY_SECONDS,
        )


def resolver_files(namespace: str, directory: Path) -> dict[str, Path]:
    """Return a kubelet's files that make a pod ask the cluster's DNS: files by their paths there."""
    files = {
        "resolv.conf": f"search {namespace}.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}\n"
        f"nameserver {DNS_ADDRESS}\noptions ndots:5\n",
        "nsswitch.conf": "hosts: files dns\n",
    }
    for name, text in files.items():
        (directory / name).write_text(text)
    return {f"/etc/{name}": directory / name for name in files}


def resolved(name: str) -> list[str]:
    """The IPv4 addresses that the server has for a name; none where it does not answer, or has none."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + labels + b"\x00\x00\x01\x00\x01"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(_LOOK_SECONDS)
        try:
            asking.connect((DNS_ADDRESS, 53))
            asking.send(query)
            answer = asking.recv(4096)
        except OSError:
            return []
    return _addresses(answer, len(query))


def _addresses(answer: bytes, begin: int) -> list[str]:
    """Those of the answer's A records, which all name what was asked by a pointer or in full."""
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

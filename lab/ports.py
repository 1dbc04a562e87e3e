"""Ports: free ones for tests, fixed ones for people, and a clear error that names the holder of a taken one.

Free ports are drawn below the range from which the kernel takes the ports of outgoing connections: a server
that is stopped and started again then finds its port still free.
"""

import atexit
import random
import socket
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError

HOST = "127.0.0.1"
_PORT_RANGE = range(18000, 32000)
_MAX_RESERVATIONS = 64
_LISTENING_TCP_STATE = "0A"  # the state of a listening socket in /proc/net/tcp


@dataclass(frozen=True, slots=True)
class Ports:
    """Fixed ports of a lab; each server without one gets a free port."""

    eureka: tuple[int, ...] = ()
    api_server: int | None = None


FIXED_PORTS = Ports(eureka=(8761, 8762, 8763), api_server=6443)


def is_port_free(port: int) -> bool:
    """Return whether a server could listen on the port now; sockets of closed connections do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Return different ports that are free now and that no lab on this machine has just been given."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORT_RANGE, k=1000):
        if len(found) == count:
            break
        if is_port_free(port) and _reserve_port(port):
            found.append(port)
    if len(found) < count:
        raise LabError(
            f"no {count} free ports between {_PORT_RANGE.start} and {_PORT_RANGE.stop} on {HOST}: "
            "stop some of the servers that listen there"
        )
    return found


_reservations: deque[socket.socket] = deque()


@atexit.register
def _release_reservations() -> None:
    while _reservations:
        _reservations.pop().close()


def _reserve_port(port: int) -> bool:
    """Reserve a port against other labs until its server listens, by a socket name that ends with this
    process; return False where another lab has reserved it.
    """
    if sys.platform != "linux":
        return True
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0eurekube-lab-port-{port}")
    except OSError:
        mark.close()
        return False
    _reservations.append(mark)
    if len(_reservations) > _MAX_RESERVATIONS:
        _reservations.popleft().close()
    return True


def require_free_port(port: int, what: str) -> None:
    """Raise a LabError that names the holder when `what` could not listen on the port."""
    if is_port_free(port):
        return
    holder = find_port_holder(port)
    by = f" by {holder}" if holder else " (by a process that this user may not look into)"
    raise LabError(
        f"port {port}, wanted for {what}, is taken{by}: stop that process and try again "
        "(a lab that is up: `python -m lab down`), or take free ports (`python -m lab up --free-ports`)"
    )


def find_port_holder(port: int) -> str | None:
    """Return the process that listens on the port, such as `process 123 (java -jar ...)`; None where that
    is hidden.
    """
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _has_any_socket(process, wanted):
            return f"process {process.name} ({_command_line(process)})"
    return None


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENING_TCP_STATE and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes


def _has_any_socket(process: Path, sockets: set[str]) -> bool:
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        return False
    for descriptor in descriptors:
        try:
            if str(descriptor.readlink()) in sockets:
                return True
        except OSError:
            continue
    return False


def _command_line(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "?"
    line = " ".join(word.decode(errors="replace") for word in words).strip()
    return line if len(line) <= 160 else line[:157] + "..."

"""A network of the lab's own, in which pods have real addresses: loopback, a bridge, and nothing else.

The whole lab runs in this network namespace, so that its servers and its callers reach the pods as in a
cluster, and no part of it can be seen or reached from outside. The namespace ends with the last process in
it. The namespaces of the pods are kept by name in a `/run` that belongs to the lab too (a mount namespace).
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.processes import Process

BRIDGE_NAME = "lab-pods"
POD_ADDRESS_TEMPLATE = "10.0.{}.{}"
NETWORK_PREFIX_LENGTH = 16
MACHINE_NETWORK = "10.20.0.0/16"
"""Network of machines outside of the cluster, which nodes and pods reach as they reach each other."""

_BRIDGE_ADDRESS = "10.0.255.254"
_BRIDGE_MAC = "02:00:00:00:00:01"
"""Fixed MAC address of the bridge: by default a bridge takes the lowest of its ports', which changes as
ports come.
"""

_TRIAL_TIMEOUT_SECONDS = 20.0
_POLL_SECONDS = 0.5
_ROOT = Path(__file__).parents[1]

_NETWORK_SETUP_SCRIPT = f"""\
mount -t tmpfs lab /run
mkdir /run/netns
ip link set lo up
ip link add {BRIDGE_NAME} address {_BRIDGE_MAC} type bridge
ip link set {BRIDGE_NAME} up
ip address add {_BRIDGE_ADDRESS}/{NETWORK_PREFIX_LENGTH} dev {BRIDGE_NAME}
ip route add {MACHINE_NETWORK} dev {BRIDGE_NAME}
exec "$@"
"""
# Makes a pod's network interface once, to find out whether this machine allows it.
_TRIAL_SCRIPT = f"""\
ip netns add try
ip link add try type veth peer name eth0 netns try
ip link set try master {BRIDGE_NAME}
"""


def wrap_command_in_network(command: Sequence[str]) -> list[str]:
    """Return the command wrapped to run in a new network of the lab's own."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [
        shutil.which("unshare") or "unshare",
        *as_root,
        "--net",
        "--mount",
        "--",
        "sh",
        "-ec",
        _NETWORK_SETUP_SCRIPT,
        "sh",
        *command,
    ]


def run_module_in_network(module: str, *arguments: str) -> dict[str, Any]:
    """Run `python -m MODULE ARGUMENTS FILE` in a network of the lab's own; return the JSON that it wrote into
    FILE.

    Its progress goes to standard error. Raises LabError when the module failed.
    """
    with tempfile.TemporaryDirectory(prefix="eurekube-inside-") as folder:
        file, log = Path(folder) / "found.json", Path(folder) / "log"
        command = wrap_command_in_network([sys.executable, "-m", module, *arguments, str(file)])
        process = Process(module, command, log=log, directory=_ROOT)
        process.launch()
        try:
            with log.open() as progress:
                while process.pid is not None:
                    time.sleep(_POLL_SECONDS)
                    sys.stderr.write(progress.read())
            if process.wait() or not file.is_file():
                raise LabError(f"{module} failed\n{process.read_log_end()}")
        finally:
            process.stop()
        found: dict[str, Any] = json.loads(file.read_text())
        return found


def is_in_lab_network() -> bool:
    """Return whether this process runs in a network of the lab's own."""
    return BRIDGE_NAME in (name for _, name in socket.if_nameindex())


def network_unavailable_reason() -> str | None:
    """Return the reason why this machine cannot have a network of the lab's own; None where it can."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    missing = [name for name in ("unshare", "nsenter", "ip", "mount") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} missing: install util-linux and iproute2"
    tried = subprocess.run(
        wrap_command_in_network(["sh", "-ec", _TRIAL_SCRIPT]),
        capture_output=True,
        text=True,
        timeout=_TRIAL_TIMEOUT_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if tried.returncode == 0:
        return None
    said = " ".join(tried.stderr.split()) or f"exit code {tried.returncode}"
    return (
        f"a network namespace with a bridge cannot be made here ({said}): it needs root or a user namespace"
    )

"""A network namespace for a pod or a machine: one address on the lab's bridge, during the sandbox's block.

All other addresses are reached by that bridge too: those of other networks, and those of Services.

As with a real pod, the address refuses connections after its process has ended. Once the sandbox is gone
nobody answers for the address any more, and a caller waits for an answer in vain.
"""

import itertools
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from lab.errors import LabError
from lab.netns import BRIDGE_NAME, NETWORK_PREFIX_LENGTH

_COMMAND_TIMEOUT_SECONDS = 30.0
_MOUNT_SCRIPT = """\
while [ "$1" != -- ]; do
    path=$(readlink -m "$1")
    [ -e "$path" ] || { mkdir -p "$(dirname "$path")"; : > "$path"; }
    mount --bind "$2" "$path"
    shift 2
done
shift
exec "$@"
"""
_sandbox_numbers = itertools.count(1)


class Sandbox:
    """A network namespace: `with Sandbox("10.0.1.7") as sandbox:`; only inside a network of the lab's own
    (:mod:`lab.netns`).
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._name = f"pod-{next(_sandbox_numbers)}"

    def __enter__(self) -> Self:
        _run_ip(
            f"netns add {self._name}\n"
            f"link add {self._name} type veth peer name eth0 netns {self._name}\n"
            f"link set {self._name} master {BRIDGE_NAME} up\n"
        )
        _run_ip(
            f"address add {self.address}/{NETWORK_PREFIX_LENGTH} dev eth0\nlink set lo up\nlink set eth0 "
            "up\nroute add default dev eth0\n",
            "-netns",
            self._name,
        )
        return self

    def __exit__(self, *_: object) -> None:
        _run_ip(f"link delete {self._name}\nnetns delete {self._name}\n")

    def cut(self) -> None:
        """Take the address off the network: packets to it and from it are lost, on open connections too."""
        _run_ip(f"link set {self._name} down\n")

    def heal(self) -> None:
        """Bring the address back into the network."""
        _run_ip(f"link set {self._name} up\n")

    def wrap_command(self, command: Sequence[str]) -> list[str]:
        """Return the command wrapped to run in the sandbox."""
        return [shutil.which("nsenter") or "nsenter", f"--net=/run/netns/{self._name}", *command]

    def wrap_command_with_files(self, files: Mapping[str, Path], command: Sequence[str]) -> list[str]:
        """Return the command wrapped to run in the sandbox, where it sees these files at these paths."""
        mounts = [word for path, file in files.items() for word in (path, str(file))]
        mounting = ["unshare", "--mount", "sh", "-ec", _MOUNT_SCRIPT, "sh", *mounts, "--", *command]
        return self.wrap_command(mounting)


def _run_ip(lines: str, *options: str) -> None:
    """Run several lines of ip(8) in one process."""
    done = subprocess.run(
        ["ip", *options, "-batch", "-"],
        input=lines,
        capture_output=True,
        text=True,
        timeout=_COMMAND_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise LabError(f"ip could not set up a pod's network: {done.stderr.strip()}")

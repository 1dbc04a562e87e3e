"""One lab: servers started together on ports of their own, and ended with the block."""

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, get_args

from lab.beside import run_in_background
from lab.errors import LabError
from lab.eureka import (
    DEFAULT_HEAP_MIB,
    EurekaOptions,
    EurekaServer,
    SecurityMode,
    SpringCloudRelease,
    require_java,
)
from lab.eureka_package import provide_eureka
from lab.kubernetes import Kubernetes, PodKind
from lab.ports import FIXED_PORTS, Ports, free_ports, require_free_port
from lab.processes import Process, kill_all
from lab.programs import API_SERVER, SERVER_PROGRAM_NAMES, find_kubectl, provide_programs
from lab.progress import Stopwatch, say

MAX_EUREKAS = len(FIXED_PORTS.eureka)
_DIRECTORY_PREFIX = "eurekube-lab-"
_KEEP_MARKER_NAME = "kept-for-its-logs"
_INTENDED_END_EXCEPTIONS = (
    KeyboardInterrupt,
    SystemExit,
    GeneratorExit,
)  # ends that somebody wished for: no logs to look into


class Lab:
    """Real servers that run during the block: `with Lab(eureka=3) as lab:`.

    `eureka` servers (0 to 3, peers of each other) and, unless `kubernetes` is False, a control plane with
    `nodes` kwok nodes (`node-1` in zone-a, `node-2` in zone-b ...). With `pods="real"` a kubelet of the lab's
    own runs the pods instead, as processes with addresses of their own; the lab must then be started in a
    network of its own (`lab.netns`). `eureka_settings` are Spring properties for every Eureka server and win
    over the lab's own. `security`: `none`; `basic` asks for EUREKA_USER and EUREKA_PASSWORD; `csrf` does too
    and answers 403 to every write. The servers run with the defaults that users have; `uncached_lists=True`
    takes their read-only cache away, so that a list shows every write at once: for tests that can neither
    wait half a minute nor read by instance, and say why. `register_with_eureka=True` makes the servers
    clients of each other, so that one which restarts copies its peers' registry. `eureka_heap_mib` is each
    server's heap: the default suffices for some ten thousand instances. Raises LabError when a server cannot
    be provided or started.
    """

    def __init__(
        self,
        *,
        eureka: int = 1,
        kubernetes: bool = True,
        nodes: int = 2,
        pods: PodKind = "played",
        ports: Ports | None = None,
        eureka_settings: Mapping[str, str] | None = None,
        spring_cloud: SpringCloudRelease = "2025.0",
        security: SecurityMode = "none",
        uncached_lists: bool = False,
        register_with_eureka: bool = False,
        eureka_heap_mib: int = DEFAULT_HEAP_MIB,
        directory: Path | None = None,
    ) -> None:
        if not 0 <= eureka <= MAX_EUREKAS:
            raise LabError(f"a lab has 0 to {MAX_EUREKAS} Eureka servers, not {eureka}")
        if nodes < 1:
            raise LabError(
                f"a lab has at least one node, not {nodes}; without Kubernetes: Lab(kubernetes=False)"
            )
        if spring_cloud not in get_args(SpringCloudRelease):
            raise LabError(
                f"spring_cloud is one of {', '.join(get_args(SpringCloudRelease))}, not {spring_cloud!r}"
            )
        if security not in get_args(SecurityMode):
            raise LabError(f"security is one of {', '.join(get_args(SecurityMode))}, not {security!r}")
        self._eureka_count = eureka
        self._with_kubernetes = kubernetes
        self._nodes = nodes
        self._pods: PodKind = pods
        self._ports = ports or Ports()
        self._spring_cloud: SpringCloudRelease = spring_cloud
        self._eureka_options = EurekaOptions(
            settings=dict(eureka_settings or {}),
            security=security,
            uncached_lists=uncached_lists,
            register_with_eureka=register_with_eureka,
            heap_mib=eureka_heap_mib,
        )
        self._own_directory = directory is None
        self._directory = directory
        self._kubernetes: Kubernetes | None = None
        self.eurekas: list[EurekaServer] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop(keep_logs=error is not None and not isinstance(error, _INTENDED_END_EXCEPTIONS))

    def start(self) -> None:
        """Provide the programs, start all servers side by side and wait until they are ready for use."""
        if self._directory is None:
            _remove_stale_directories()
            self._directory = Path(tempfile.mkdtemp(prefix=f"{_DIRECTORY_PREFIX}{os.getpid()}-"))
        atexit.register(self.stop)
        try:
            self._start()
        except BaseException as error:
            self.stop(keep_logs=not isinstance(error, _INTENDED_END_EXCEPTIONS))
            raise

    def stop(self, *, keep_logs: bool = False) -> None:
        """Kill every server and remove the scratch directory, or all of it but the logs."""
        atexit.unregister(self.stop)
        if self._kubernetes is not None:
            self._kubernetes.stop_kubelet()
        kill_all(self.processes)
        if not self._own_directory or self._directory is None:
            return
        if keep_logs and (self.directory / "logs").exists():
            for path in self.directory.iterdir():
                if path.is_dir() and path.name != "logs":
                    shutil.rmtree(path, ignore_errors=True)
                elif path.is_file():
                    path.unlink()
            (self.directory / _KEEP_MARKER_NAME).touch()
            say(f"the logs are kept in {self.directory / 'logs'}")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)
        self._directory = None

    @property
    def directory(self) -> Path:
        """The lab's scratch directory, which contains `logs`."""
        if self._directory is None:
            raise LabError("this lab is not running: use it inside `with Lab() as lab:`")
        return self._directory

    @property
    def processes(self) -> list[Process]:
        """Every server of the lab."""
        return [*self.eurekas, *(self._kubernetes.processes if self._kubernetes is not None else [])]

    @property
    def eureka_urls(self) -> list[str]:
        """The service URLs of the Eureka servers, `http://127.0.0.1:<port>/eureka`, without credentials."""
        return [server.url for server in self.eurekas]

    @property
    def kubernetes(self) -> Kubernetes:
        """The control plane, for one-off requests as the administrator."""
        if self._kubernetes is None:
            raise LabError("this lab has no Kubernetes, or is not running: use Lab(kubernetes=True)")
        return self._kubernetes

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig of the administrator (group system:masters)."""
        return self.kubernetes.kubeconfig

    @property
    def api_server_url(self) -> str:
        return self.kubernetes.url

    @property
    def ca_file(self) -> Path:
        """File with the certificate of the authority that signed the API server's certificate."""
        return self.kubernetes.ca_file

    @property
    def etcd(self) -> Process:
        return self.kubernetes.etcd

    @property
    def api_server(self) -> Process:
        return self.kubernetes.api_server

    @property
    def controller_manager(self) -> Process:
        return self.kubernetes.controller_manager

    @property
    def scheduler(self) -> Process:
        return self.kubernetes.scheduler

    @property
    def kwok(self) -> Process:
        return self.kubernetes.kwok

    @property
    def kubectl(self) -> Path | None:
        """Path of kubectl on PATH or in the cache; None where it is missing."""
        return find_kubectl()

    def service_account_kubeconfig(self, namespace: str, name: str, path: Path) -> Path:
        """Write a kubeconfig with a token of that ServiceAccount, to run a program with its rights only."""
        return self.kubernetes.service_account_kubeconfig(namespace, name, path)

    def _start(self) -> None:
        eureka_ports, api_server_port = self._choose_ports()
        java = require_java() if self._eureka_count else None
        with run_in_background(
            lambda: provide_eureka(java, self._spring_cloud) if java else None
        ) as packaging:
            programs = provide_programs(SERVER_PROGRAM_NAMES) if self._with_kubernetes else {}
        package = packaging.result()
        stopwatch = Stopwatch()
        if java is not None and package is not None:
            self.eurekas = [
                EurekaServer(
                    number=number,
                    ports=eureka_ports,
                    options=self._eureka_options,
                    package=package,
                    java=java,
                    log_directory=self.directory / "logs",
                )
                for number in range(self._eureka_count)
            ]
        for server in self.eurekas:  # they take longest, and need nobody
            server.launch()
        if self._with_kubernetes:
            self._kubernetes = Kubernetes(
                programs,
                directory=self.directory,
                api_server_port=api_server_port,
                nodes=self._nodes,
                pods=self._pods,
            )
            self._kubernetes.start()
            say(f"Kubernetes answers at {self.api_server_url} after {stopwatch}")
        for server in self.eurekas:
            server.wait_until_ready()
            say(f"{server.name} answers at {server.url} after {stopwatch}")
        if self._kubernetes is not None:
            self._kubernetes.wait_until_pods_can_run()
            say(f"Kubernetes can run pods on {self._nodes} nodes after {stopwatch}")

    def _choose_ports(self) -> tuple[list[int], int]:
        """Return the Eureka servers' ports and the API server's; raise LabError when a fixed one is taken."""
        eureka_ports = list(self._ports.eureka[: self._eureka_count])
        for number, port in enumerate(eureka_ports, start=1):
            require_free_port(port, f"Eureka server {number}")
        if self._with_kubernetes and self._ports.api_server is not None:
            require_free_port(self._ports.api_server, API_SERVER)
        drawn = free_ports(self._eureka_count - len(eureka_ports) + 1)
        return [*eureka_ports, *drawn[1:]], self._ports.api_server or drawn[0]


def _remove_stale_directories() -> None:
    """Remove the scratch directories of labs whose process was killed, but not those kept for their logs."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_DIRECTORY_PREFIX}*"):
        found = re.match(rf"{_DIRECTORY_PREFIX}(\d+)-", directory.name)
        if (
            found
            and not (directory / _KEEP_MARKER_NAME).exists()
            and not _is_process_running(int(found.group(1)))
        ):
            shutil.rmtree(directory, ignore_errors=True)


def _is_process_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True

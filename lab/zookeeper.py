"""Real ZooKeeper servers, an ensemble of one or three, and a caller; Maven fetches or makes their jars once.

The jars are kept in the cache under a hash of the sources. The settings are ZooKeeper's own defaults, except
for the tick of a second, so that a server that is gone is noticed within seconds.
"""

import hashlib
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import requests

from lab.builds import find_tool, run_tool
from lab.cache import cache_folder, fill_folder_atomically, hold_cache_lock
from lab.errors import LabError
from lab.eureka import Java, require_java
from lab.ports import HOST, free_ports
from lab.processes import Process, kill_all
from lab.progress import say
from lab.sandbox import Sandbox
from lab.tcp_proxy import TcpProxy

_SERVER_PROJECT_FOLDER = Path(__file__).parent / "zookeeper-server"
_CLIENT_PROJECT_FOLDER = Path(__file__).parent / "zookeeper-client"
_JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx128m")
_TICK_MS = 1000


class ZooKeeperServer(Process):
    """One ZooKeeper server; clients reach it at `host` and `port`."""

    def __init__(
        self,
        number: int,
        ports: Sequence[Sequence[int]],
        java: Java,
        package: Path,
        directory: Path,
        pem: Path | None,
        sandboxes: Sequence[Sandbox] = (),
    ):
        hosts = [one.address for one in sandboxes] or [HOST] * len(ports)
        self.host, self.port = hosts[number], ports[number][0]
        data = directory / f"zookeeper-{number + 1}"
        data.mkdir(parents=True)
        (data / "myid").write_text(f"{number + 1}\n")
        lines = [
            f"dataDir={data}",
            f"clientPort={self.port}",
            f"clientPortAddress={self.host}",
            f"tickTime={_TICK_MS}",
            "initLimit=10",
            "syncLimit=5",
            "admin.enableServer=false",
            "4lw.commands.whitelist=ruok,srvr,mntr",
        ]
        if pem is not None:
            lines += [
                f"secureClientPort={ports[number][3]}",
                f"secureClientPortAddress={self.host}",
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
                f"ssl.keyStore.location={pem}",
                f"ssl.trustStore.location={pem}",
                "ssl.clientAuth=none",
            ]
        if len(ports) > 1:
            lines += [
                f"server.{id_}={host}:{quorum}:{election}"
                for id_, (host, (_, quorum, election, _)) in enumerate(zip(hosts, ports, strict=True), 1)
            ]
        (data / "zoo.cfg").write_text("\n".join(lines) + "\n")
        command = [
            str(java.path),
            *_JVM_OPTIONS,
            "-cp",
            f"{package / 'target' / 'lib'}/*",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(data / "zoo.cfg"),
        ]
        super().__init__(
            f"zookeeper-{number + 1}",
            sandboxes[number].wrap_command(command) if sandboxes else command,
            log=directory / "logs" / f"zookeeper-{number + 1}.log",
            is_ready=lambda: self.read_role() is not None,
        )

    def read_role(self) -> str | None:
        """Return `standalone`, `leader` or `follower`; None while the server serves nobody."""
        try:
            with socket.create_connection((self.host, self.port), 2.0) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return None
        found = [line for line in answer.decode().splitlines() if line.startswith("Mode: ")]
        return found[0].removeprefix("Mode: ") if found else None


class ZooKeeperEnsemble:
    """An ensemble of ZooKeeper servers. Clients may go through `proxies`, one before each server, which can
    be broken.

    With a `pem`, a file with key and certificate, the first server speaks TLS at `tls_url`. With `sandboxes`,
    one for each server, each has an address of its own, at which it can be cut off, and no proxy.
    """

    def __init__(self, count: int = 1, pem: Path | None = None, *, sandboxes: Sequence[Sandbox] = ()) -> None:
        if count not in (1, 3):
            raise LabError(f"an ensemble of the lab has one server or three, not {count}")
        java = require_java()
        package = _provide_package(_SERVER_PROJECT_FOLDER, java)
        drawn = free_ports(4 * count)
        ports = [drawn[4 * number : 4 * number + 4] for number in range(count)]
        self.tls_url = f"zookeepers://{HOST}:{ports[0][3]}"
        self._is_sandboxed = bool(sandboxes)
        self._directory = Path(tempfile.mkdtemp(prefix="eurekube-zookeeper-"))
        self.servers = [
            ZooKeeperServer(number, ports, java, package, self._directory, pem, sandboxes)
            for number in range(count)
        ]
        self.proxies: list[TcpProxy] = []

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_until_ready()
            for server in self.servers if not self._is_sandboxed else ():
                proxy = TcpProxy(server.port)
                proxy.start()
                self.proxies.append(proxy)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL of the ensemble."""
        return "zookeeper://" + ",".join(f"{one.host}:{one.port}" for one in self.servers)

    @property
    def proxied_url(self) -> str:
        """URL of the ensemble through the proxies."""
        return "zookeeper://" + ",".join(f"{HOST}:{one.port}" for one in self.proxies)

    def close(self) -> None:
        """End all servers and delete their data."""
        for proxy in self.proxies:
            proxy.stop()
        kill_all(self.servers)
        shutil.rmtree(self._directory, ignore_errors=True)


class ZooKeeperClient(Process):
    """The application of `zookeeper-client/`: a caller that finds services by Spring Cloud Zookeeper.

    Its caches have the default settings unless `settings`, Spring properties, say otherwise.
    """

    def __init__(self, url: str, root: str, log_directory: Path, settings: Mapping[str, str]) -> None:
        java = require_java()
        (self.port,) = free_ports(1)
        self._session = requests.Session()
        self._session.trust_env = False
        properties = {
            "server.address": HOST,
            "server.port": str(self.port),
            "spring.application.name": "caller",
            "spring.cloud.zookeeper.connect-string": url.removeprefix("zookeeper://"),
            "spring.cloud.zookeeper.discovery.root": root,
            "management.endpoints.web.exposure.include": "serviceregistry",
            **settings,
        }
        arguments = [f"--{key}={value}" for key, value in properties.items()]
        jar = _provide_package(_CLIENT_PROJECT_FOLDER, java) / "target" / "zookeeper-client.jar"
        super().__init__(
            "zookeeper-client",
            [java.path, *_JVM_OPTIONS, "-jar", jar, *arguments],
            log=log_directory / "zookeeper-client.log",
            is_ready=self._answers,
        )

    def get(self, path: str) -> Any:
        """Return the application's answer to a GET request."""
        answer = self._session.get(f"http://{HOST}:{self.port}{path}", timeout=60)
        answer.raise_for_status()
        return answer.json()

    def set_status(self, status: str) -> None:
        """Change the status of the client's own registration through its actuator, as a person does."""
        url = f"http://{HOST}:{self.port}/actuator/serviceregistry"
        self._session.post(url, json={"status": status}, timeout=60).raise_for_status()

    def close(self) -> None:
        """End the client at once."""
        self.kill()
        self._session.close()

    def _answers(self) -> bool:
        try:
            return bool(self.get("/instances/nobody") == [])
        except requests.exceptions.RequestException:
            return False


def provide_zookeeper() -> None:
    """Put the packages of server and client into the cache, for processes that cannot download later."""
    java = require_java()
    for project in (_SERVER_PROJECT_FOLDER, _CLIENT_PROJECT_FOLDER):
        _provide_package(project, java)


def _provide_package(project: Path, java: Java) -> Path:
    """Return the folder of a packaged copy of a Maven project, from the cache or newly made."""
    digest = hashlib.sha256(java.version.encode())
    for source in sorted(path for path in project.rglob("*") if path.is_file()):
        if "target" not in source.relative_to(project).parts:
            digest.update(str(source.relative_to(project)).encode() + b"\0" + source.read_bytes())
    folder = cache_folder() / project.name / digest.hexdigest()[:12]
    if folder.exists():
        return folder
    maven = find_tool("mvn")
    if maven is None:
        raise LabError(f"Maven is missing; it makes {project.name}: install it (Debian package maven)")
    with hold_cache_lock(project.name):
        if not folder.exists():
            with fill_folder_atomically(folder) as content:
                shutil.copytree(project, content, ignore=shutil.ignore_patterns("target"), dirs_exist_ok=True)
                run_tool(
                    f"making {project.name} with Maven (once)",
                    [str(maven), "-B", "-Dstyle.color=never", "package"],
                    directory=content,
                    environment=os.environ,
                    log=cache_folder() / ".logs" / f"{project.name}.log",
                )
            say(f"{project.name}: in the cache now ({folder})")
    return folder

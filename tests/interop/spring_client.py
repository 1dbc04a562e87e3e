"""A real Spring Cloud client: packaged once by Maven, started as an application of its own, asked over HTTP.

Packaged like the lab's Eureka server: kept in the cache under a hash of its sources, unpacked and with an
archive of its loaded classes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import requests

from lab.builds import find_tool, run_tool
from lab.cache import cache_folder, filled_atomically, locked
from lab.errors import LabError
from lab.eureka import Java, find_java
from lab.ports import HOST, free_ports
from lab.processes import Process
from lab.progress import say
from lab.waiting import wait_until

Document = dict[str, Any]

WAIT_SECONDS = 20.0
"""How long a change may take to reach the client, which fetches the registry every second."""

_PROJECT = Path(__file__).parent / "spring-client"
_JAR = "spring-client.jar"
_CLASS_ARCHIVE = "spring-client.jsa"
_JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx192m")


class SpringClientMissing(Exception):
    """Neither packaged yet nor can it be: Java or Maven is missing."""


class SpringClient(Process):
    """The application of ``spring-client/``, a client of one Eureka server."""

    def __init__(
        self, eureka_url: str, *, name: str, log_directory: Path, settings: Mapping[str, str]
    ) -> None:
        """Provide the program; ``settings`` are Spring properties.

        :raises SpringClientMissing: Java or Maven is missing.
        """
        package, java = _provide()
        (self.port,) = free_ports(1)
        self._session = requests.Session()
        self._session.trust_env = False
        properties = {
            "server.address": HOST,
            "server.port": str(self.port),
            "spring.application.name": name,
            "eureka.client.service-url.defaultZone": f"{eureka_url}/",
            **settings,
        }
        arguments = [f"--{key}={value}" for key, value in properties.items()]
        archive = f"-XX:SharedArchiveFile={_CLASS_ARCHIVE}"
        super().__init__(
            "spring-client",
            [java.path, *_JVM_OPTIONS, archive, "-jar", _JAR, *arguments],
            log=log_directory / "spring-client.log",
            is_ready=self._answers,
            directory=package,
        )

    def close(self) -> None:
        """End the application at once; its registration stays."""
        self.kill()
        self._session.close()

    def get(self, path: str) -> requests.Response:
        """One request to the application."""
        return self._session.get(f"http://{HOST}:{self.port}{path}", timeout=30)

    def instances(self, service: str, *ids: str) -> list[Document]:
        """What its ``DiscoveryClient`` gives for a service, once these ids and no others are there."""
        return self._once_there(f"/instances/{service}", ids)

    def held(self, vip: str, *ids: str, secure: bool = False) -> list[Document]:
        """What Netflix's ``EurekaClient`` holds under a VIP, once these ids and no others are there."""
        path = f"/netflix/{vip}?secure={str(secure).lower()}"
        return self._once_there(path, ids)

    def choose(self, service: str, instance_id: str) -> Document:
        """What its ``LoadBalancerClient`` chose, once that is this instance."""

        def is_it(seen: Document) -> bool:
            return seen.get("instanceId") == instance_id

        chosen: Document = self._once(f"/choose/{service}", is_it)
        return chosen

    def chooses(self, service: str) -> str | None:
        """The id that its ``LoadBalancerClient`` chooses now, None where it finds none."""
        chosen: str | None = self.get(f"/choose/{service}").json().get("instanceId")
        return chosen

    def call(self, service: str, path: str = "") -> Document:
        """The answer to its own GET of ``http://service/path`` by name, through its load balancer."""
        answer: Document = self.get(f"/call/{service}/{path}").json()
        return answer

    def _once_there(self, path: str, ids: tuple[str, ...]) -> list[Document]:
        def are_there(seen: list[Document]) -> bool:
            return sorted(instance["instanceId"] for instance in seen) == sorted(ids)

        found: list[Document] = self._once(path, are_there)
        return found

    def _once(self, path: str, is_there: Callable[[Any], bool]) -> Any:
        seen: Any = None

        def ask() -> bool:
            nonlocal seen
            seen = self.get(path).json()
            return is_there(seen)

        try:
            wait_until(ask, f"the Spring client's {path}", WAIT_SECONDS)
        except LabError as error:
            raise AssertionError(f"{error}; it has {json.dumps(seen)}") from None
        return seen

    def _answers(self) -> bool:
        try:
            return self.get("/netflix/nobody").status_code == 200
        except requests.exceptions.RequestException:
            return False


def _provide() -> tuple[Path, Java]:
    """The folder of the packaged client, from the cache or made by Maven, and the Java to run it."""
    try:
        java = find_java()
    except LabError as error:
        raise SpringClientMissing(str(error)) from None
    folder = cache_folder() / "spring-client" / _fingerprint(java)
    if not folder.exists():
        maven = find_tool("mvn")
        if maven is None:
            raise SpringClientMissing(
                "Maven is missing; the Spring client is packaged with it: install it (Debian package maven)"
            )
        with locked("spring-client"):
            if not folder.exists():
                with filled_atomically(folder) as content:
                    _package(content, java, maven)
                say(f"Spring client: packaged, now in the cache ({folder})")
    return folder, java


def _fingerprint(java: Java) -> str:
    digest = hashlib.sha256(java.version.encode())
    for source in sorted(path for path in _PROJECT.rglob("*") if path.is_file()):
        name = source.relative_to(_PROJECT)
        if "target" not in name.parts:
            digest.update(str(name).encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:12]


def _package(content: Path, java: Java, maven: Path) -> None:
    build = content / ".build"
    shutil.copytree(_PROJECT, build, ignore=shutil.ignore_patterns("target"))
    maven_command = [str(maven), "-B", "-Dstyle.color=never", "package"]
    _run("packaging the Spring client with Maven (once)", maven_command, build)
    extract = [str(java.path), "-Djarmode=tools", "-jar", _JAR, "extract", "--destination", "unpacked"]
    _run("unpacking the Spring client", extract, build / "target")
    for path in (build / "target" / "unpacked").iterdir():
        path.rename(content / path.name)
    shutil.rmtree(build)
    training = [f"-XX:ArchiveClassesAtExit={_CLASS_ARCHIVE}", "-Dspring.context.exit=onRefresh", "-jar", _JAR]
    quiet = ["--eureka.client.register-with-eureka=false", "--eureka.client.fetch-registry=false"]
    _run(
        "recording the classes of the Spring client",
        [str(java.path), *_JVM_OPTIONS, *training, f"--server.address={HOST}", "--server.port=0", *quiet],
        content,
    )


def _run(what: str, command: list[str], directory: Path) -> None:
    log = cache_folder() / ".logs" / "spring-client.log"
    run_tool(what, command, directory=directory, environment=os.environ, log=log)

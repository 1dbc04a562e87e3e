"""Real Spring applications, packaged once by Maven and asked over HTTP: a Spring Cloud client, a Spring Cloud
Gateway, and a Spring Boot Admin server.

Like the Eureka server's, their packages are kept in the cache under a hash of their sources, unpacked and
with an archive of their loaded classes. Their caches have the default settings unless `settings` say
otherwise.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import requests

from lab.builds import find_tool, run_tool
from lab.cache import cache_folder, fill_folder_atomically, hold_cache_lock
from lab.errors import LabError
from lab.eureka import Java, require_java
from lab.ports import HOST, free_ports
from lab.processes import Process
from lab.progress import say

_CLIENT_PROJECT_NAME = "spring-client"
_ADMIN_PROJECT_NAME = "spring-admin"
_GATEWAY_PROJECT_NAME = "spring-gateway"
_JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")


class SpringClientMissing(LabError):
    """Raised where a Spring application is not packaged, and cannot be: Java or Maven is missing."""


class _SpringApplication(Process):
    """A packaged application, a client of the given Eureka servers; `settings` are Spring properties.

    Raises SpringClientMissing when Java or Maven is missing.
    """

    _project_name: ClassVar[str]
    _ready_path: ClassVar[str]

    def __init__(
        self,
        eureka_urls: Sequence[str],
        *,
        name: str,
        log_directory: Path,
        settings: Mapping[str, str],
    ) -> None:
        package, java = _provide_package(self._project_name)
        (self.port,) = free_ports(1)
        self._session = requests.Session()
        self._session.trust_env = False
        properties = {
            "server.address": HOST,
            "server.port": str(self.port),
            "spring.application.name": name,
            "eureka.client.service-url.defaultZone": ",".join(f"{url}/" for url in eureka_urls),
            **settings,
        }
        arguments = [f"--{key}={value}" for key, value in properties.items()]
        archive = f"-XX:SharedArchiveFile={self._project_name}.jsa"
        super().__init__(
            self._project_name,
            [java.path, *_JVM_OPTIONS, archive, "-jar", f"{self._project_name}.jar", *arguments],
            log=log_directory / f"{name.lower()}.log",
            is_ready=self._answers,
            directory=package,
        )

    def close(self) -> None:
        """End the application at once; its registration stays."""
        self.kill()
        self._session.close()

    def get(self, path: str) -> requests.Response:
        """Send one GET request to the application."""
        return self._session.get(
            f"http://{HOST}:{self.port}{path}", headers={"Accept": "application/json"}, timeout=30
        )

    def _answers(self) -> bool:
        try:
            return self.get(self._ready_path).status_code == 200
        except requests.exceptions.RequestException:
            return False


class SpringAdmin(_SpringApplication):
    """A Spring Boot Admin server, which finds applications through Eureka and shows their health."""

    _project_name = _ADMIN_PROJECT_NAME
    _ready_path = "/instances"


class SpringGateway(_SpringApplication):
    """A Spring Cloud Gateway, whose routes are the applications in Eureka: ``/<application>/...``."""

    _project_name = _GATEWAY_PROJECT_NAME
    _ready_path = "/actuator/health"


class SpringClient(_SpringApplication):
    """The application of `spring-client/`: it shows the instances that callers see in Eureka, and makes
    calls.
    """

    _project_name = _CLIENT_PROJECT_NAME
    _ready_path = "/netflix/nobody"

    def begin_calls(self, balanced: Sequence[str], feign: Sequence[str], per_second: int, file: Path) -> None:
        """Make the client call `http://<application>/` of each application `per_second` times a second, until
        `end_calls`.

        `balanced` through a RestClient with Spring Cloud LoadBalancer, `feign` through OpenFeign. Every call
        becomes a line of the file: see `spring-client/`'s `Calls`.
        """
        orders = {
            "balanced": list(balanced),
            "feign": list(feign),
            "perSecond": per_second,
            "file": str(file),
        }
        self._require_ok(self._session.post(f"http://{HOST}:{self.port}/calls", json=orders, timeout=120))

    def end_calls(self) -> None:
        """End the calls; afterwards the file has all of them, including those that were under way."""
        self._require_ok(self._session.delete(f"http://{HOST}:{self.port}/calls", timeout=120))

    def _require_ok(self, answer: requests.Response) -> None:
        if not answer.ok:
            raise LabError(f"{self.name} answered {answer.status_code}: {answer.text}\n{self.read_log_end()}")


def provide_spring_client() -> tuple[Path, Java]:
    """Return the folder of the packaged client, from the cache or made by Maven, and the Java to run it."""
    return _provide_package(_CLIENT_PROJECT_NAME)


def provide_spring_admin() -> tuple[Path, Java]:
    """Return the folder of the packaged Spring Boot Admin server, and the Java to run it."""
    return _provide_package(_ADMIN_PROJECT_NAME)


def provide_spring_gateway() -> tuple[Path, Java]:
    """Return the folder of the packaged Spring Cloud Gateway, and the Java to run it."""
    return _provide_package(_GATEWAY_PROJECT_NAME)


def _provide_package(project: str) -> tuple[Path, Java]:
    try:
        java = require_java()
    except LabError as error:
        raise SpringClientMissing(str(error)) from None
    folder = cache_folder() / project / _fingerprint(project, java)
    if not folder.exists():
        maven = find_tool("mvn")
        if maven is None:
            raise SpringClientMissing(
                f"Maven is missing; {project} is packaged with it: install it (Debian package maven)"
            )
        with hold_cache_lock(project):
            if not folder.exists():
                with fill_folder_atomically(folder) as content:
                    _build_package(project, content, java, maven)
                say(f"{project}: packaged, now in the cache ({folder})")
    return folder, java


def _fingerprint(project: str, java: Java) -> str:
    digest = hashlib.sha256(java.version.encode())
    folder = Path(__file__).parent / project
    for source in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = source.relative_to(folder)
        if "target" not in name.parts:
            digest.update(str(name).encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:12]


def _build_package(project: str, content: Path, java: Java, maven: Path) -> None:
    build = content / ".build"
    shutil.copytree(Path(__file__).parent / project, build, ignore=shutil.ignore_patterns("target"))
    jar = f"{project}.jar"
    maven_command = [str(maven), "-B", "-Dstyle.color=never", "package"]
    _run_step(project, "packaging with Maven (once)", maven_command, build)
    extract = [str(java.path), "-Djarmode=tools", "-jar", jar, "extract", "--destination", "unpacked"]
    _run_step(project, "unpacking", extract, build / "target")
    for path in (build / "target" / "unpacked").iterdir():
        path.rename(content / path.name)
    shutil.rmtree(build)
    training = [f"-XX:ArchiveClassesAtExit={project}.jsa", "-Dspring.context.exit=onRefresh", "-jar", jar]
    quiet = ["--eureka.client.register-with-eureka=false", "--eureka.client.fetch-registry=false"]
    _run_step(
        project,
        "recording the classes",
        [str(java.path), *_JVM_OPTIONS, *training, f"--server.address={HOST}", "--server.port=0", *quiet],
        content,
    )


def _run_step(project: str, what: str, command: list[str], directory: Path) -> None:
    log = cache_folder() / ".logs" / f"{project}.log"
    run_tool(f"{project}: {what}", command, directory=directory, environment=os.environ, log=log)

"""A real Spring Cloud client: packaged once by Maven, started as an application, asked over HTTP.

Packaged like the Eureka server: kept in the cache under a hash of its sources, unpacked and with an archive
of its loaded classes. Its caches are as they are by default unless `settings` say otherwise.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import requests

from lab.builds import find_tool, run_tool
from lab.cache import cache_folder, filled_atomically, locked
from lab.errors import LabError
from lab.eureka import Java, find_java
from lab.ports import HOST, free_ports
from lab.processes import Process
from lab.progress import say

_PROJECT = Path(__file__).parent / "spring-client"
_JAR = "spring-client.jar"
_CLASS_ARCHIVE = "spring-client.jsa"
_JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")


class SpringClientMissing(LabError):
    """Neither packaged yet nor can it be: Java or Maven is missing."""


class SpringClient(Process):
    """The application of `spring-client/`, a client of the given Eureka servers; `settings` are Spring
    properties.

    Raises SpringClientMissing when Java or Maven is missing.
    """

    def __init__(
        self,
        eureka_urls: Sequence[str],
        *,
        name: str,
        log_directory: Path,
        settings: Mapping[str, str],
    ) -> None:
        package, java = provide_spring_client()
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
        archive = f"-XX:SharedArchiveFile={_CLASS_ARCHIVE}"
        super().__init__(
            "spring-client",
            [java.path, *_JVM_OPTIONS, archive, "-jar", _JAR, *arguments],
            log=log_directory / f"{name.lower()}.log",
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

    def begin_calls(self, balanced: Sequence[str], feign: Sequence[str], per_second: int, file: Path) -> None:
        """Have it call `http://<application>/` so often a second each, until it is told to end that.

        `balanced` through a RestClient with Spring Cloud LoadBalancer, `feign` through OpenFeign. Every call
        becomes a line of the file: see `spring-client/`'s `Calls`.
        """
        orders = {
            "balanced": list(balanced),
            "feign": list(feign),
            "perSecond": per_second,
            "file": str(file),
        }
        self._check(self._session.post(f"http://{HOST}:{self.port}/calls", json=orders, timeout=120))

    def end_calls(self) -> None:
        """No further calls; once this returns the file has all, also those that were under way."""
        self._check(self._session.delete(f"http://{HOST}:{self.port}/calls", timeout=120))

    def _check(self, answer: requests.Response) -> None:
        if not answer.ok:
            raise LabError(f"{self.name} answered {answer.status_code}: {answer.text}\n{self.tail()}")

    def _answers(self) -> bool:
        try:
            return self.get("/netflix/nobody").status_code == 200
        except requests.exceptions.RequestException:
            return False


def provide_spring_client() -> tuple[Path, Java]:
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

"""Real Spring Cloud Eureka servers, started with the settings that users have.

`lab.eureka_package` builds their package, once.
"""

import base64
import os
import re
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lab.builds import command_output, find_tool
from lab.errors import LabError
from lab.ports import HOST
from lab.processes import Process
from lab.waiting import is_answered_ok

SpringCloudRelease = Literal["2025.0", "2025.1"]
SecurityMode = Literal["none", "basic", "csrf"]

EUREKA_USER = "eureka"
EUREKA_PASSWORD = "s3cret"  # noqa: S105 - of servers that only this machine can reach

FAST_LIST_SETTINGS = {
    "eureka.server.response-cache-update-interval-ms": "1000",
    "eureka.server.response-cache-auto-expiration-in-seconds": "6",
}
"""Settings with which lists are late, as by default, but by less time: for tests that wait for lists often.

A list is late by a second instead of half a minute, and by six seconds, instead of three minutes, where
something changed while it was rendered.
"""

_OLDEST_JAVA_VERSION = 17
JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    # Three hundred classes, most of them XStream's, are too old for the archive: every start verified them.
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
DEFAULT_HEAP_MIB = 256
JAR_NAME = "eureka-server.jar"
CLASS_ARCHIVE_NAME = "eureka-server.jsa"
_FAST_REGISTRY_COPY_OPTION = "--eureka.server.registry-sync-retry-wait-ms=500"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime and the version it reports, such as `17.0.15`."""

    path: Path
    version: str


@dataclass(frozen=True, slots=True)
class EurekaOptions:
    """Options that the servers of one lab share."""

    settings: Mapping[str, str]
    security: SecurityMode
    uncached_lists: bool
    register_with_eureka: bool
    heap_mib: int = DEFAULT_HEAP_MIB


class EurekaServer(Process):
    """One Eureka server; `url` ends in /eureka and carries no credentials."""

    def __init__(
        self,
        *,
        number: int,
        ports: Sequence[int],
        options: EurekaOptions,
        package: Path,
        java: Java,
        log_directory: Path,
    ) -> None:
        self.port = ports[number]
        self._java = java
        self.url = f"http://{HOST}:{self.port}/eureka"
        self._credentials = EUREKA_USER + ":" + EUREKA_PASSWORD if options.security != "none" else ""
        arguments = [
            f"--{name}={value}" for name, value in self._spring_properties(number, ports, options).items()
        ]
        super().__init__(
            f"eureka-{number + 1}",
            [
                java.path,
                *JVM_OPTIONS,
                f"-Xmx{options.heap_mib}m",
                f"-XX:SharedArchiveFile={CLASS_ARCHIVE_NAME}",
                "-jar",
                JAR_NAME,
                *arguments,
            ],
            log=log_directory / f"eureka-{number + 1}.log",
            is_ready=self._answers,
            directory=package,
        )

    def start_with_registry_copy(self) -> None:
        """Start the server so that it copies another server's registry, this once, whatever its options
        say.
        """
        before = self._command
        client = ("--eureka.client.register-with-eureka=", "--eureka.client.fetch-registry=")
        self._command = [word for word in before if not word.startswith(client)]
        self._command += [f"{word}true" for word in client]
        self._command.append(_FAST_REGISTRY_COPY_OPTION)
        try:
            self.start()
        finally:
            self._command = before

    def count_cached_answers(self) -> int:
        """Return the number of rendered answers in the server's response caches, counted in its heap after a
        garbage collection.
        """
        found = re.search(r"(\d+)\s+\d+\s+\S*ResponseCacheImpl\$Value\b", self._read_heap_histogram())
        return int(found[1]) if found else 0

    def live_heap_bytes(self) -> int:
        """Return the size of the server's live objects after a collection, which this call makes."""
        found = re.search(r"^Total\s+\d+\s+(\d+)", self._read_heap_histogram(), re.MULTILINE)
        if found is None:
            raise LabError(f"the histogram of {self.name} has no total")
        return int(found[1])

    def count_loaded_classes(self) -> tuple[int, int]:
        """Return how many classes the server took from its archive, and how many it loaded without it."""
        found = dict(re.findall(r"java\.cls\.(\w+)=(\d+)", self._run_jcmd("PerfCounter.print")))
        return int(found["sharedLoadedClasses"]), int(found["loadedClasses"])

    def _read_heap_histogram(self) -> str:
        return self._run_jcmd("GC.class_histogram")

    def _run_jcmd(self, command: str) -> str:
        jcmd = self._java.path.resolve().parent / "jcmd"
        if not jcmd.exists():
            raise LabError(f"{jcmd} is missing: looking into a server needs a JDK, not a JRE")
        text = command_output([str(jcmd), str(self.pid), command], timeout_seconds=60.0)
        if text is None:
            raise LabError(f"{jcmd} says nothing of {self.name} (process {self.pid})")
        return text

    def _spring_properties(self, number: int, ports: Sequence[int], options: EurekaOptions) -> dict[str, str]:
        own = self._service_url(ports[number])
        others = [self._service_url(port) for position, port in enumerate(ports) if position != number]
        client = str(options.register_with_eureka).lower()
        settings = {
            "server.address": HOST,
            "server.port": str(ports[number]),
            "eureka.instance.hostname": HOST,
            "eureka.client.service-url.defaultZone": ",".join(others or [own]),
            # Eureka takes a peer with its own host name for itself, and all peers here are 127.0.0.1.
            "eureka.server.my-url": own,
            "eureka.client.register-with-eureka": client,
            "eureka.client.fetch-registry": client,
            "lab.security": options.security,
            "spring.security.user.name": EUREKA_USER,
            "spring.security.user.password": EUREKA_PASSWORD,
        }
        if options.register_with_eureka:
            # By default each retry of the copy waits 30 s, and the first server has nobody to copy from.
            name, _, value = _FAST_REGISTRY_COPY_OPTION.removeprefix("--").partition("=")
            settings[name] = value
        if options.uncached_lists:  # not as users run them: see `Lab`
            settings["eureka.server.use-read-only-response-cache"] = "false"
        return {**settings, **options.settings}

    def _service_url(self, port: int) -> str:
        credentials = f"{self._credentials}@" if self._credentials else ""
        return f"http://{credentials}{HOST}:{port}/eureka/"

    def _answers(self) -> bool:
        request = urllib.request.Request(f"{self.url}/status")
        if self._credentials:
            token = base64.b64encode(self._credentials.encode()).decode()
            request.add_header("Authorization", f"Basic {token}")
        return is_answered_ok(_direct_opener, request)


_direct_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def require_java() -> Java:
    """Return the Java of JAVA_HOME or PATH; raise a LabError with advice where none is new enough."""
    advice = (
        f"install a JDK {_OLDEST_JAVA_VERSION} or newer (Debian: openjdk-17-jdk-headless) or set JAVA_HOME"
    )
    home = os.environ.get("JAVA_HOME")
    found = find_tool("java", *([Path(home) / "bin"] if home else []))
    if found is None:
        raise LabError(
            f"Java is missing, neither in JAVA_HOME nor on PATH; the Eureka servers need it: {advice}"
        )
    version = re.search(r'version "([^"]+)"', command_output([str(found), "-version"]) or "")
    if version is None:
        raise LabError(f"Java at {found} does not answer -version: {advice}")
    if int(version.group(1).split(".")[0].split("-")[0]) < _OLDEST_JAVA_VERSION:
        raise LabError(f"Java at {found} is {version.group(1)}, too old for the Eureka servers: {advice}")
    return Java(found, version.group(1))

"""The package of the Eureka servers: built once by Maven, unpacked, with an archive of loaded classes (CDS).

The package is kept in the cache under a hash of its sources, of this module and of the JVM's options. A
training run makes the archive: a server that starts, answers each kind of request and is asked to end. The
classes that it loaded need not be found, parsed and verified again: that is half of the processor time of a
start, and part of the cost of the first requests.
"""

import hashlib
import os
import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import requests

from lab.builds import find_tool, run_tool
from lab.cache import cache_folder, fill_folder_atomically, hold_cache_lock
from lab.errors import LabError
from lab.eureka import (
    CLASS_ARCHIVE_NAME,
    EUREKA_PASSWORD,
    EUREKA_USER,
    JAR_NAME,
    JVM_OPTIONS,
    EurekaOptions,
    EurekaServer,
    Java,
    SpringCloudRelease,
)
from lab.ports import HOST, free_ports
from lab.progress import Stopwatch, report_signs_of_life, say
from lab.proxy import Proxy
from lab.waiting import wait_until

_PROJECT_FOLDER = Path(__file__).parent / "eureka-server"
# Spring Cloud's release, and the Spring Boot that belongs to it.
_SPRING_CLOUD_AND_BOOT_VERSIONS: Mapping[SpringCloudRelease, tuple[str, str]] = {
    "2025.0": ("2025.0.0", "3.5.6"),
    "2025.1": ("2025.1.0", "4.0.0"),
}
_SIGNATURE_FILE_PATTERN = re.compile(r"META-INF/[^/]+\.(SF|RSA|DSA|EC)")
_SECTION_SEPARATOR_PATTERN = re.compile(rb"\r?\n\r?\n")
_TRAINING_TIMEOUT_SECONDS = 120.0
"""The longest that one step of the training run may take."""
_TRAINING_INSTANCE = {
    "instanceId": "trainee:8080",
    "app": "TRAINEE",
    "hostName": "10.0.0.1",
    "ipAddr": "10.0.0.1",
    "vipAddress": "trainee",
    "secureVipAddress": "trainee",
    "status": "UP",
    "overriddenStatus": "UNKNOWN",
    "port": {"$": 8080, "@enabled": "true"},
    "securePort": {"$": 443, "@enabled": "false"},
    "dataCenterInfo": {"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"},
    "leaseInfo": {"renewalIntervalInSecs": 30, "durationInSecs": 90},
    "metadata": {"zone": "zone-a"},
}
_REPLICATION_ITEM = {"appName": "TRAINEE", "id": "trainee:8080", "lastDirtyTimestamp": 1, "status": "UP"}
_REPLICATION_BATCH = [
    {**_REPLICATION_ITEM, "action": "Heartbeat"},
    {**_REPLICATION_ITEM, "action": "Register", "instanceInfo": _TRAINING_INSTANCE},
    {**_REPLICATION_ITEM, "action": "StatusUpdate", "status": "OUT_OF_SERVICE"},
    {**_REPLICATION_ITEM, "action": "DeleteStatusOverride"},
    {**_REPLICATION_ITEM, "action": "Heartbeat", "id": "nobody"},
]
_INSTANCE_PATH = "/eureka/apps/TRAINEE/trainee:8080"
_TRAINING_REQUESTS: tuple[tuple[str, str, object], ...] = (
    ("POST", "/eureka/apps/TRAINEE", {"instance": _TRAINING_INSTANCE}),
    ("PUT", _INSTANCE_PATH, None),
    ("PUT", f"{_INSTANCE_PATH}/status?value=OUT_OF_SERVICE", None),
    ("DELETE", f"{_INSTANCE_PATH}/status?value=UP", None),
    ("PUT", f"{_INSTANCE_PATH}/metadata?a=b", None),
    ("POST", "/eureka/peerreplication/batch/", {"replicationList": _REPLICATION_BATCH}),
    ("POST", "/eureka/peerreplication/batch/", {"replicationList": [{"unheardOf": True}]}),
    ("POST", "/", {}),  # refused by the CSRF check
    *(
        ("GET", path, None)
        for path in (
            _INSTANCE_PATH,
            "/eureka/instances/trainee:8080",
            "/eureka/apps",
            "/eureka/apps/delta",
            "/eureka/apps/TRAINEE",
            "/eureka/apps/NOBODY",
            "/eureka/vips/trainee",
            "/eureka/svips/trainee",
            "/eureka/status",
            "/",
        )
    ),
    ("DELETE", _INSTANCE_PATH, None),
)
_EXPECTED_PEER_REQUESTS = (
    "POST /eureka/peerreplication/batch/",
    "POST /eureka/apps/",
    "GET /eureka/apps/delta",
)
"""First words of the requests that a server sends to its peers: replicated changes, and, as their client, its
registration and its fetches.
"""


def provide_eureka(java: Java, spring_cloud: SpringCloudRelease) -> Path:
    """Return the folder of the packaged Eureka server, from the cache or made by Maven."""
    release, boot = _SPRING_CLOUD_AND_BOOT_VERSIONS[spring_cloud]
    what = f"Eureka server (Spring Cloud {release}, Spring Boot {boot})"
    folder = cache_folder() / "eureka-server" / cached_package_name(java, spring_cloud)
    if not folder.exists():
        with hold_cache_lock("eureka-server"):
            if not folder.exists():
                stopwatch = Stopwatch()
                with fill_folder_atomically(folder) as content:
                    _build_package(content, what, java, release, boot)
                    _record_class_archive(content, java)
                say(f"{what}: packaged in {stopwatch}, now in the cache ({folder})")
                return folder
    say(f"{what}: from the cache, {folder}")
    return folder


def cached_package_name(java: Java, spring_cloud: SpringCloudRelease) -> str:
    """Return the package's name in the cache, which differs for every change that makes another package."""
    digest = hashlib.sha256(
        "\0".join([*_SPRING_CLOUD_AND_BOOT_VERSIONS[spring_cloud], java.version, *JVM_OPTIONS]).encode()
    )
    digest.update(Path(__file__).read_bytes())
    for source in sorted(path for path in _PROJECT_FOLDER.rglob("*") if path.is_file()):
        if "target" not in source.relative_to(_PROJECT_FOLDER).parts:
            digest.update(str(source.relative_to(_PROJECT_FOLDER)).encode() + b"\0" + source.read_bytes())
    return f"{spring_cloud}-{digest.hexdigest()[:12]}"


def _build_package(content: Path, what: str, java: Java, release: str, boot: str) -> None:
    """Run Maven in a copy of the project and leave the server unpacked: its jar and, beside it, `lib`."""
    maven = find_tool("mvn")
    if maven is None:
        raise LabError(f"Maven is missing; the {what} is packaged with it: install it (Debian package maven)")
    say(f"{what}: packaging it with Maven (once; about a minute)")
    build = content / ".build"
    shutil.copytree(_PROJECT_FOLDER, build, ignore=shutil.ignore_patterns("target"))
    versions = (f"-Dspring-boot.version={boot}", f"-Dspring-cloud.version={release}")
    run_tool(
        f"packaging the {what}",
        [str(maven), "-B", "-Dstyle.color=never", *versions, "package"],
        directory=build,
        environment=os.environ,
        log=cache_folder() / ".logs" / f"maven-{release}.log",
    )
    run_tool(
        f"unpacking the {what}",
        [str(java.path), "-Djarmode=tools", "-jar", JAR_NAME, "extract", "--destination", "unpacked"],
        directory=build / "target",
        environment=os.environ,
        log=cache_folder() / ".logs" / f"unpack-{release}.log",
    )
    for path in (build / "target" / "unpacked").iterdir():
        path.rename(content / path.name)
    shutil.rmtree(build)
    for jar in sorted((content / "lib").glob("*.jar")):
        remove_signature(jar)


def remove_signature(jar: Path) -> None:
    """Remove a jar's signature, which every start would check, and keep its manifest and its classes.

    The check costs a tenth of a start (each Spring Cloud application looks for Bouncy Castle), and no class
    of a signed jar is archived.
    """
    with zipfile.ZipFile(jar) as signed:
        signatures = set(filter(_SIGNATURE_FILE_PATTERN.fullmatch, signed.namelist()))
        if not signatures:
            return
        unsigned = jar.with_suffix(".unsigned")
        with zipfile.ZipFile(unsigned, "w", zipfile.ZIP_DEFLATED) as written:
            for entry in signed.infolist():
                if entry.filename not in signatures:
                    content = signed.read(entry)
                    # Its first section is about the jar; in the others stand the digests of its files.
                    is_manifest = entry.filename == "META-INF/MANIFEST.MF"
                    written.writestr(
                        entry,
                        _SECTION_SEPARATOR_PATTERN.split(content)[0] + b"\n\n" if is_manifest else content,
                    )
    unsigned.replace(jar)


def _record_class_archive(content: Path, java: Java) -> None:
    """Write the archive of the classes that a server loads from its start to its end, in one training run.

    Without the archive a server only starts later. Paths stay relative: the archive serves only a server that
    names its jar in the same words.
    """
    try:
        with report_signs_of_life(
            "recording the classes of the Eureka server", lambda: "a server that answers requests"
        ):
            _run_training_server(content, java)
        if not (content / CLASS_ARCHIVE_NAME).exists():
            raise LabError(f"Java left no {CLASS_ARCHIVE_NAME}")
    except (LabError, requests.RequestException) as error:
        (content / CLASS_ARCHIVE_NAME).unlink(missing_ok=True)
        say(f"the Eureka server will start without a class archive: {error}")


def _run_training_server(content: Path, java: Java) -> None:
    """Run a server that asks for a password, replicates to itself through a proxy and is its own client."""
    (port,) = free_ports(1)
    with Proxy(port, keeps_heads=True) as itself:
        trainee = _TrainingServer(content, java, (port, itself.port))
        try:
            trainee.start()
            _send_training_requests(f"http://{HOST}:{port}")

            def has_sent_peer_requests() -> bool:
                return all(
                    any(head.startswith(one) for head in itself.heads) for one in _EXPECTED_PEER_REQUESTS
                )

            wait_until(has_sent_peer_requests, "the server's own requests", _TRAINING_TIMEOUT_SECONDS)
            trainee.terminate()
            wait_until(
                lambda: trainee.pid is None, "the server to write the archive", _TRAINING_TIMEOUT_SECONDS
            )
        finally:
            trainee.kill()


def _send_training_requests(root: str) -> None:
    """Send every kind of request, as JSON and as XML, and one without the password; ignore the answers."""
    with requests.Session() as session:
        session.trust_env = False
        session.get(f"{root}/eureka/apps", timeout=_TRAINING_TIMEOUT_SECONDS)
        session.auth = (EUREKA_USER, EUREKA_PASSWORD)
        for accept in ("application/json", "application/xml"):
            session.headers["Accept"] = accept
            for method, path, body in _TRAINING_REQUESTS:
                session.request(method, f"{root}{path}", json=body, timeout=_TRAINING_TIMEOUT_SECONDS)


class _TrainingServer(EurekaServer):
    """A server that writes the archive when it ends, instead of reading one."""

    def __init__(self, package: Path, java: Java, ports: tuple[int, int]) -> None:
        super().__init__(
            number=0,
            ports=ports,
            options=EurekaOptions(
                {"eureka.client.registry-fetch-interval-seconds": "1"},
                security="basic",
                uncached_lists=False,
                register_with_eureka=True,
            ),
            package=package,
            java=java,
            log_directory=cache_folder() / ".logs",
        )
        self.log.unlink(missing_ok=True)
        written = f"-XX:ArchiveClassesAtExit={CLASS_ARCHIVE_NAME}"
        self._command = [
            written if word.startswith("-XX:SharedArchiveFile=") else word for word in self._command
        ]

"""The package of the Eureka servers: built once by Maven, unpacked, with an archive of loaded classes (CDS).

It is kept in the cache under a hash of its sources, of this module and of the JVM's options. A training run
makes the archive: a server that starts, answers each kind of request and is asked to end. What it loaded
need not be found, parsed and verified again: that is half of the processor time of a start, and part of
what the first requests cost.
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
from lab.cache import cache_folder, filled_atomically, locked
from lab.errors import LabError
from lab.eureka import (
    CLASS_ARCHIVE,
    EUREKA_PASSWORD,
    EUREKA_USER,
    JAR,
    JVM_OPTIONS,
    EurekaOptions,
    EurekaServer,
    Java,
    SpringCloud,
)
from lab.ports import HOST, free_ports
from lab.progress import Stopwatch, heartbeat, say
from lab.proxy import Proxy
from lab.waiting import wait_until

_PROJECT = Path(__file__).parent / "eureka-server"
# Spring Cloud's release, and the Spring Boot that belongs to it.
_TRAINS: Mapping[SpringCloud, tuple[str, str]] = {
    "2025.0": ("2025.0.0", "3.5.6"),
    "2025.1": ("2025.1.0", "4.0.0"),
}
_SIGNATURE = re.compile(r"META-INF/[^/]+\.(SF|RSA|DSA|EC)")
_SECTIONS = re.compile(rb"\r?\n\r?\n")
_TRAINING_SECONDS = 120.0
"""The longest that one step of the training run may take."""
_INSTANCE = {
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
_ITEM = {"appName": "TRAINEE", "id": "trainee:8080", "lastDirtyTimestamp": 1, "status": "UP"}
_BATCH = [
    {**_ITEM, "action": "Heartbeat"},
    {**_ITEM, "action": "Register", "instanceInfo": _INSTANCE},
    {**_ITEM, "action": "StatusUpdate", "status": "OUT_OF_SERVICE"},
    {**_ITEM, "action": "DeleteStatusOverride"},
    {**_ITEM, "action": "Heartbeat", "id": "nobody"},
]
_ONE = "/eureka/apps/TRAINEE/trainee:8080"
_REQUESTS: tuple[tuple[str, str, object], ...] = (
    ("POST", "/eureka/apps/TRAINEE", {"instance": _INSTANCE}),
    ("PUT", _ONE, None),
    ("PUT", f"{_ONE}/status?value=OUT_OF_SERVICE", None),
    ("DELETE", f"{_ONE}/status?value=UP", None),
    ("PUT", f"{_ONE}/metadata?a=b", None),
    ("POST", "/eureka/peerreplication/batch/", {"replicationList": _BATCH}),
    ("POST", "/eureka/peerreplication/batch/", {"replicationList": [{"unheardOf": True}]}),
    ("POST", "/", {}),  # refused by the CSRF check
    *(
        ("GET", path, None)
        for path in (
            _ONE,
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
    ("DELETE", _ONE, None),
)
_OF_ITSELF = ("POST /eureka/peerreplication/batch/", "POST /eureka/apps/", "GET /eureka/apps/delta")
"""Requests from a server to its peers: changes to take over, and, as their client, registration and lists."""


def provide_eureka(java: Java, spring_cloud: SpringCloud) -> Path:
    """The folder of the packaged Eureka server, from the cache or made by Maven."""
    release, boot = _TRAINS[spring_cloud]
    what = f"Eureka server (Spring Cloud {release}, Spring Boot {boot})"
    folder = cache_folder() / "eureka-server" / package_name(java, spring_cloud)
    if not folder.exists():
        with locked("eureka-server"):
            if not folder.exists():
                stopwatch = Stopwatch()
                with filled_atomically(folder) as content:
                    _package(content, what, java, release, boot)
                    _archive_classes(content, java)
                say(f"{what}: packaged in {stopwatch}, now in the cache ({folder})")
                return folder
    say(f"{what}: from the cache, {folder}")
    return folder


def package_name(java: Java, spring_cloud: SpringCloud) -> str:
    """Return the package's name in the cache: another name for whatever would make another package."""
    digest = hashlib.sha256("\0".join([*_TRAINS[spring_cloud], java.version, *JVM_OPTIONS]).encode())
    digest.update(Path(__file__).read_bytes())
    for source in sorted(path for path in _PROJECT.rglob("*") if path.is_file()):
        if "target" not in source.relative_to(_PROJECT).parts:
            digest.update(str(source.relative_to(_PROJECT)).encode() + b"\0" + source.read_bytes())
    return f"{spring_cloud}-{digest.hexdigest()[:12]}"


def _package(content: Path, what: str, java: Java, release: str, boot: str) -> None:
    """Run Maven in a copy of the project and leave the server unpacked: its jar and, beside it, `lib`."""
    maven = find_tool("mvn")
    if maven is None:
        raise LabError(f"Maven is missing; the {what} is packaged with it: install it (Debian package maven)")
    say(f"{what}: packaging it with Maven (once; about a minute)")
    build = content / ".build"
    shutil.copytree(_PROJECT, build, ignore=shutil.ignore_patterns("target"))
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
        [str(java.path), "-Djarmode=tools", "-jar", JAR, "extract", "--destination", "unpacked"],
        directory=build / "target",
        environment=os.environ,
        log=cache_folder() / ".logs" / f"unpack-{release}.log",
    )
    for path in (build / "target" / "unpacked").iterdir():
        path.rename(content / path.name)
    shutil.rmtree(build)
    for jar in sorted((content / "lib").glob("*.jar")):
        unsign(jar)


def unsign(jar: Path) -> None:
    """Take away a jar's signature, which every start would check, and keep what it says for its classes.

    It costs a tenth of a start (Bouncy Castle is looked for by each Spring Cloud application), and no class
    of a signed jar is archived.
    """
    with zipfile.ZipFile(jar) as signed:
        signatures = set(filter(_SIGNATURE.fullmatch, signed.namelist()))
        if not signatures:
            return
        unsigned = jar.with_suffix(".unsigned")
        with zipfile.ZipFile(unsigned, "w", zipfile.ZIP_DEFLATED) as written:
            for entry in signed.infolist():
                if entry.filename not in signatures:
                    content = signed.read(entry)
                    # Its first section is about the jar; in the others stand the digests of its files.
                    is_manifest = entry.filename == "META-INF/MANIFEST.MF"
                    written.writestr(entry, _SECTIONS.split(content)[0] + b"\n\n" if is_manifest else content)
    unsigned.replace(jar)


def _archive_classes(content: Path, java: Java) -> None:
    """Record which classes a server loads from its start to its end, in one run: it only spares time.

    Paths stay relative: the record serves only a server that names its jar in the same words.
    """
    try:
        with heartbeat(
            "recording the classes of the Eureka server", lambda: "a server that answers requests"
        ):
            _train(content, java)
        if not (content / CLASS_ARCHIVE).exists():
            raise LabError(f"Java left no {CLASS_ARCHIVE}")
    except (LabError, requests.RequestException) as error:
        (content / CLASS_ARCHIVE).unlink(missing_ok=True)
        say(f"the Eureka server will start without a class archive: {error}")


def _train(content: Path, java: Java) -> None:
    """One server that asks for a password, replicates to itself through a proxy and is its own client."""
    (port,) = free_ports(1)
    with Proxy(port, keeps_heads=True) as itself:
        trainee = _Trainee(content, java, (port, itself.port))
        try:
            trainee.start()
            _ask(f"http://{HOST}:{port}")

            def has_asked_itself() -> bool:
                return all(any(head.startswith(one) for head in itself.heads) for one in _OF_ITSELF)

            wait_until(has_asked_itself, "the server's own requests", _TRAINING_SECONDS)
            trainee.terminate()
            wait_until(lambda: trainee.pid is None, "the server to write the archive", _TRAINING_SECONDS)
        finally:
            trainee.kill()


def _ask(root: str) -> None:
    """Every kind of request, as JSON and as XML, and one without the password, whatever is answered."""
    with requests.Session() as session:
        session.trust_env = False
        session.get(f"{root}/eureka/apps", timeout=_TRAINING_SECONDS)
        session.auth = (EUREKA_USER, EUREKA_PASSWORD)
        for accept in ("application/json", "application/xml"):
            session.headers["Accept"] = accept
            for method, path, body in _REQUESTS:
                session.request(method, f"{root}{path}", json=body, timeout=_TRAINING_SECONDS)


class _Trainee(EurekaServer):
    """A server that writes the archive when it ends, instead of reading one."""

    def __init__(self, package: Path, java: Java, ports: tuple[int, int]) -> None:
        super().__init__(
            number=0,
            ports=ports,
            options=EurekaOptions(
                {"eureka.client.registry-fetch-interval-seconds": "1"},
                security="basic",
                quick_view=False,
                register_with_eureka=True,
            ),
            package=package,
            java=java,
            log_directory=cache_folder() / ".logs",
        )
        self.log.unlink(missing_ok=True)
        written = f"-XX:ArchiveClassesAtExit={CLASS_ARCHIVE}"
        self._command = [
            written if word.startswith("-XX:SharedArchiveFile=") else word for word in self._command
        ]

"""The source of each program of the lab: PATH, the user's cache, an official download, or a build from
source.

The first that works is used, and one line says which. Checksums are the publishers' own: the Kubernetes
changelog (server archives), kubernetes-sigs/controller-tools (envtest archives), Helm's release notes; for
etcd and kwok, whose release pages could not be read when they were written down, they were taken from
Kubespray's and the Arch User Repository's pins of the same files. A platform without a checksum here is not
downloaded but built.
"""

import os
import platform
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from lab.builds import GoModule, build_go_programs, command_output, temporary_go_caches
from lab.cache import cache_folder, fill_folder_atomically, hold_cache_lock
from lab.downloads import Archive, DownloadError, are_downloads_allowed, fetch_archive
from lab.errors import LabError
from lab.progress import Stopwatch, say

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KUBECTL = "kubectl"
KWOK = "kwok"
HELM = "helm"
HELM_4 = "helm4"
PROMTOOL = "promtool"
ACTIONLINT = "actionlint"
COREDNS = "coredns"
THIRD_PARTY_READERS = "foreign-readers"
PULUMI = "pulumi"
PULUMI_KUBERNETES = "pulumi-resource-kubernetes"
PULUMI_YAML = "pulumi-language-yaml"
PULUMI_PYTHON_SDK = "pulumi-python-sdk"

_KUBERNETES_VERSION = "1.36.3"
_CLUSTER_MODULE = GoModule(
    "cluster",
    linker_flags=(
        f"-X k8s.io/component-base/version.gitVersion=v{_KUBERNETES_VERSION} "
        "-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
    ),
)
"""Module of Kubernetes' programs, etcd and kwok, which share most of their compiled packages."""

_HELM_3_VERSION = "3.21.4"
_HELM_3_MODULE = GoModule(
    "helm",
    # The version of Kubernetes that helm assumes where it does not ask one, as its own build sets it.
    linker_flags=" ".join(
        [
            f"-X helm.sh/helm/v3/internal/version.version=v{_HELM_3_VERSION}",
            "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1",
            "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36",
            "-X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1",
            "-X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=36",
        ]
    ),
)
_HELM_4_VERSION = "4.3.1"
_HELM_4_MODULE = GoModule("helm4", f"-X helm.sh/helm/v4/internal/version.version=v{_HELM_4_VERSION}")
_PROMTOOL_VERSION = "0.316.0"
# Without service discovery, which promtool needs for no rule and which is most of what there is to build.
_PROMTOOL_MODULE = GoModule(
    "promtool", f"-X github.com/prometheus/common/version.Version={_PROMTOOL_VERSION}", tags="remove_all_sd"
)
_PULUMI_VERSION = "3.276.0"
_PULUMI_MODULE = GoModule(
    "pulumi", f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{_PULUMI_VERSION}"
)
_PULUMI_YAML_VERSION = "1.25.0"
_PULUMI_YAML_MODULE = GoModule(
    "pulumi-yaml", f"-X github.com/pulumi/pulumi-yaml/pkg/version.Version=v{_PULUMI_YAML_VERSION}"
)
# Its module has no version: the commit that is built comes after this release.
_PULUMI_KUBERNETES_VERSION = "4.25.0"
_PULUMI_KUBERNETES_MODULE = GoModule(
    "pulumi-kubernetes",
    f"-X main.version={_PULUMI_KUBERNETES_VERSION}",
    embedded_files=dict.fromkeys(
        ("schema.json", "terraform-mapping.json"),
        "github.com/pulumi/pulumi-kubernetes/provider/v4/cmd/pulumi-resource-kubernetes",
    ),
)


def _kubernetes_server_archive(architecture: str, sha512: str) -> Archive:
    return Archive(
        url=f"https://dl.k8s.io/v1.36.0/kubernetes-server-linux-{architecture}.tar.gz",
        version="1.36.0",
        checksum=f"sha512:{sha512}",
        members={
            name: f"kubernetes/server/bin/{name}"
            for name in (API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KUBECTL)
        },
    )


def _envtest_archive(architecture: str, sha512: str) -> Archive:
    """Return the archive of the only official Kubernetes server for macOS; it has etcd and no
    controller-manager.
    """
    return Archive(
        url="https://github.com/kubernetes-sigs/controller-tools/releases/download/envtest-v1.36.2/"
        f"envtest-v1.36.2-darwin-{architecture}.tar.gz",
        version="1.36.2",
        checksum=f"sha512:{sha512}",
        members={name: f"controller-tools/envtest/{name}" for name in (API_SERVER, ETCD, KUBECTL)},
    )


def _etcd_archive(architecture: str, sha256: str) -> Archive:
    name = f"etcd-v3.6.5-linux-{architecture}"
    return Archive(
        url=f"https://github.com/etcd-io/etcd/releases/download/v3.6.5/{name}.tar.gz",
        version="3.6.5",
        checksum=f"sha256:{sha256}",
        members={ETCD: f"{name}/etcd"},
    )


def _kwok_archive(system_and_architecture: str, sha256: str) -> Archive:
    return Archive(
        url=f"https://github.com/kubernetes-sigs/kwok/releases/download/v0.8.0/kwok-{system_and_architecture}",
        version="0.8.0",
        checksum=f"sha256:{sha256}",
    )


def _helm_archive(system_and_architecture: str, sha256: str) -> Archive:
    return Archive(
        url=f"https://get.helm.sh/helm-v{_HELM_3_VERSION}-{system_and_architecture}.tar.gz",
        version=_HELM_3_VERSION,
        checksum=f"sha256:{sha256}",
        members={HELM: f"{system_and_architecture}/helm"},
    )


_SERVER_ARCHIVE_BY_PLATFORM = {
    "linux-amd64": _kubernetes_server_archive(
        "amd64",
        "1c64da92575451c2c7ff97c79b772e603995f8e76da1371a6b0746aaa27b65dc"
        "e81c4d734cbb50f40e71486a8e08df36f14e12974f97d4d29e41f23a172a6a25",
    ),
    "linux-arm64": _kubernetes_server_archive(
        "arm64",
        "7f95e451baedd9368a2fa637afa84c9ed1b958736540ca27a379e5e292e1a10c"
        "5d9a29539f833047574bf5d3b6f907f32dee5735acecc11aa4686f078108dcf8",
    ),
}
_ENVTEST_ARCHIVE_BY_PLATFORM = {
    "darwin-amd64": _envtest_archive(
        "amd64",
        "b4fe9f973cd1992e3880f8b230ed32c0c243b83371591e3e3315f4404df2cdbe"
        "f8ee94eeb9bb245b7e5feb987d5c4a76c43e0877654ab73f00d7bbc2b9984514",
    ),
    "darwin-arm64": _envtest_archive(
        "arm64",
        "9278f9e5af556b2f1f2d139769c1f0d717c7b4426917fdebdba898bcb725a916"
        "e4910d6160886194ff9be9589ea7c5c32c2b8ae0754703874b7c8ba8ddfc41ce",
    ),
}
_ETCD_ARCHIVE_BY_PLATFORM = {
    "linux-amd64": _etcd_archive("amd64", "66bad39ed920f6fc15fd74adcb8bfd38ba9a6412f8c7852d09eb11670e88cac3"),
    "linux-arm64": _etcd_archive("arm64", "7010161787077b07de29b15b76825ceacbbcedcb77fe2e6832f509be102cab6b"),
}
_KWOK_ARCHIVE_BY_PLATFORM = {
    "linux-amd64": _kwok_archive(
        "linux-amd64", "f5a4385a2ae1b9dd7f8acae18e002a75c0ebba124ae9d7259aa8dadb50711f46"
    ),
    "linux-arm64": _kwok_archive(
        "linux-arm64", "628f7d277860f524a2a775c217adcc58828e7b59ab0933680315784f1b8b0e37"
    ),
    "darwin-arm64": _kwok_archive(
        "darwin-arm64", "69a064ec98d37844d9d742b5b28ff57825659a983ccc3e208daa6948b94d64ba"
    ),
}
_HELM_ARCHIVE_BY_PLATFORM = {
    name: _helm_archive(name, sha256)
    for name, sha256 in {
        "linux-amd64": "61f88ab166748cb19604d7884cb100ae9ccb13804ddeb98e08af167eacbb6a14",
        "linux-arm64": "b54c04b4e0b2540bbdc08c17a121dab70e9a2ed0de5705528fec68a5fd3b85a7",
        "darwin-amd64": "9173d05edf9592c6be1d0412ffafd935448dfc7a63c2bc732b8c67e55503e8a8",
        "darwin-arm64": "6e0bf5eb6daafc2b1ec34bb5ba04ef103f3afc16192fb19805c2924d7ea1033f",
    }.items()
}


@dataclass(frozen=True, slots=True)
class Program:
    """A program: the version that is built, its package, and the oldest version that is accepted from PATH.

    `go_package_path` is the import path of its main package in Go. `archives` are its official downloads by
    platform. `version_arguments` print its version; a program without them is taken from PATH in any version.
    """

    name: str
    version: str
    oldest_version: tuple[int, int]
    module: GoModule
    go_package_path: str
    archives: Mapping[str, Archive] = field(default_factory=dict)
    version_arguments: tuple[str, ...] = ("--version",)

    @property
    def built_path(self) -> Path:
        """Path of the built program in the cache."""
        fingerprint = self.module.package_fingerprint(self.go_package_path)
        return cache_folder() / self.name / f"{self.version}-{fingerprint}" / self.name

    @property
    def archive(self) -> Archive | None:
        """Official download for this machine, if there is one."""
        return self.archives.get(platform_name())


def _kubernetes_program(name: str, archives: Mapping[str, Archive], *version_arguments: str) -> Program:
    go_package_path = f"k8s.io/kubernetes/cmd/{name}"
    return Program(
        name,
        _KUBERNETES_VERSION,
        (1, 33),
        _CLUSTER_MODULE,
        go_package_path,
        archives,
        version_arguments or ("--version",),
    )


PROGRAM_BY_NAME = {
    program.name: program
    for program in (
        Program(
            ETCD,
            "3.6.8",
            (3, 5),
            _CLUSTER_MODULE,
            "go.etcd.io/etcd/server/v3",
            {**_ETCD_ARCHIVE_BY_PLATFORM, **_ENVTEST_ARCHIVE_BY_PLATFORM},
        ),
        _kubernetes_program(API_SERVER, {**_SERVER_ARCHIVE_BY_PLATFORM, **_ENVTEST_ARCHIVE_BY_PLATFORM}),
        _kubernetes_program(CONTROLLER_MANAGER, _SERVER_ARCHIVE_BY_PLATFORM),
        _kubernetes_program(SCHEDULER, _SERVER_ARCHIVE_BY_PLATFORM),
        _kubernetes_program(
            KUBECTL, {**_SERVER_ARCHIVE_BY_PLATFORM, **_ENVTEST_ARCHIVE_BY_PLATFORM}, "version", "--client"
        ),
        Program(
            KWOK, "0.8.0", (0, 6), _CLUSTER_MODULE, "sigs.k8s.io/kwok/cmd/kwok", _KWOK_ARCHIVE_BY_PLATFORM
        ),
        Program(
            HELM,
            _HELM_3_VERSION,
            (3, 14),
            _HELM_3_MODULE,
            "helm.sh/helm/v3/cmd/helm",
            _HELM_ARCHIVE_BY_PLATFORM,
            ("version", "--short"),
        ),
        Program(
            HELM_4,
            _HELM_4_VERSION,
            (4, 0),
            _HELM_4_MODULE,
            "helm.sh/helm/v4/cmd/helm",
            version_arguments=("version", "--short"),
        ),
        Program(
            PROMTOOL,
            _PROMTOOL_VERSION,
            (0, 300),
            _PROMTOOL_MODULE,
            "github.com/prometheus/prometheus/cmd/promtool",
        ),
        Program(
            COREDNS,
            "1.14.7",
            (1, 11),
            GoModule("coredns"),
            "eurekube.lab/coredns",
            version_arguments=("-version",),
        ),
        Program(
            THIRD_PARTY_READERS,
            "1",
            (1, 0),
            GoModule("foreign"),
            "eurekube.lab/foreign",
            version_arguments=(),
        ),
        Program(
            ACTIONLINT,
            "1.7.12",
            (1, 7),
            GoModule("actionlint"),
            "github.com/rhysd/actionlint/cmd/actionlint",
            version_arguments=("-version",),
        ),
        Program(
            PULUMI,
            _PULUMI_VERSION,
            (3, 276),
            _PULUMI_MODULE,
            "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
            version_arguments=("version",),
        ),
        Program(
            PULUMI_PYTHON_SDK,
            _PULUMI_VERSION,
            (3, 276),
            _PULUMI_MODULE,
            "eurekube.lab/pulumi/python-sdk",
            version_arguments=(),
        ),
        Program(
            PULUMI_YAML,
            _PULUMI_YAML_VERSION,
            (1, 0),
            _PULUMI_YAML_MODULE,
            "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml",
            version_arguments=(),
        ),
        Program(
            PULUMI_KUBERNETES,
            _PULUMI_KUBERNETES_VERSION,
            (4, 0),
            _PULUMI_KUBERNETES_MODULE,
            "eurekube.lab/pulumi-kubernetes",
            version_arguments=(),
        ),
    )
}

SERVER_PROGRAM_NAMES = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)
"""Programs of a lab with Kubernetes; other programs are provided on request."""

TEST_TOOL_NAMES = (KUBECTL, HELM, COREDNS, THIRD_PARTY_READERS, ACTIONLINT)
"""Programs that some tests run beside a lab."""

NIGHTLY_TOOL_NAMES = (HELM_4, PROMTOOL)
"""Programs that only nightly tests run."""


def platform_name(system: str | None = None, machine: str | None = None) -> str:
    """Return this machine's platform, such as `linux-amd64` or `darwin-arm64`, as Go and the release
    archives name it.
    """
    system = (system or platform.system()).lower()
    machine = (machine or platform.machine()).lower()
    machine = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386", "armv7l": "arm"}.get(machine, machine)
    return f"{system}-{machine}"


def provide_programs(names: Iterable[str], caches: Path | None = None) -> dict[str, Path]:
    """Find, download or build the programs; return the path of each by its name, and say where each came
    from.

    `caches` are Go's, of :func:`temporary_go_caches`: later calls with the same folder share the compiled
    packages.
    """
    programs = [PROGRAM_BY_NAME[name] for name in names]
    found = {
        program.name: path
        for program in programs
        if (path := _find_on_path(program) or _find_in_cache_and_report(program))
    }
    missing = [program for program in programs if program.name not in found]
    if missing:
        with nullcontext(caches) if caches else temporary_go_caches() as shared:
            for module in dict.fromkeys(program.module.name for program in missing):
                found |= _download_or_build(
                    [program for program in missing if program.module.name == module], shared
                )
    return {program.name: found[program.name] for program in programs}


def find_program_path(name: str) -> Path | None:
    """Return the program if it is on PATH or in the cache, without downloading or building it."""
    on_path = shutil.which(name)
    return Path(on_path) if on_path else _find_in_cache(PROGRAM_BY_NAME[name])


def find_kubectl() -> Path | None:
    """Return kubectl if it is on PATH or in the cache: a lab works without it."""
    return find_program_path(KUBECTL)


def _download_or_build(programs: Sequence[Program], caches: Path) -> dict[str, Path]:
    """Download those of one module's programs that have a download, and build the rest in one go."""
    with hold_cache_lock(programs[0].module.name):
        found: dict[str, Path] = {}
        refused: dict[str, str] = {}
        for program in programs:
            path = _find_in_cache(program)  # made by the lab that held the lock, or by the download before
            if path is None:
                refused[program.name] = _download_or_explain_failure(program)
                path = _find_in_cache(program)
            if path is not None:
                found[program.name] = path
        to_build = [program for program in programs if program.name not in found]
        if to_build:
            reasons = "; ".join(dict.fromkeys(refused[program.name] for program in to_build))
            found |= _build_programs(to_build, reasons, caches)
        return found


def _find_on_path(program: Program) -> Path | None:
    found = shutil.which(program.name)
    if found is None:
        return None
    if not program.version_arguments:
        say(f"{program.name}: from PATH, {found}")
        return Path(found).absolute()
    version = _read_version([found, *program.version_arguments])
    if version is None:
        say(
            f"{program.name}: {found} is ignored, since it does not answer "
            f"{' '.join(program.version_arguments)}"
        )
        return None
    if tuple(map(int, version.split(".")[:2])) < program.oldest_version:
        oldest_version = ".".join(map(str, program.oldest_version))
        say(f"{program.name} {version}: {found} is ignored, {oldest_version} or newer is needed")
        return None
    say(f"{program.name} {version}: from PATH, {found}")
    return Path(found).absolute()


def _read_version(command: Sequence[str]) -> str | None:
    found = re.search(r"\bv?(\d+\.\d+\.\d+)", command_output(command) or "")
    return found.group(1) if found else None


def _find_in_cache_and_report(program: Program) -> Path | None:
    path = _find_in_cache(program)
    if path:
        say(f"{program.name} {path.parent.name.partition('-')[0]}: from the cache, {path}")
    return path


def _find_in_cache(program: Program) -> Path | None:
    archive = program.archive
    places = [program.built_path, *([_download_folder(archive) / program.name] if archive else [])]
    return next((place for place in places if os.access(place, os.X_OK)), None)


def _download_folder(archive: Archive) -> Path:
    return cache_folder() / "downloads" / archive.checksum.partition(":")[2][:16] / archive.version


def _download_or_explain_failure(program: Program) -> str:
    """Try the official archive; return why it could not be used, or "" if it was."""
    archive = program.archive
    if not are_downloads_allowed():
        return "downloads are switched off by EUREKUBE_NO_DOWNLOAD"
    if archive is None:
        reason = f"no checksum of an official download is pinned for {platform_name()}"
        say(f"{program.name} {program.version}: {reason}")
        return reason
    stopwatch = Stopwatch()
    try:
        with fill_folder_atomically(_download_folder(archive)) as folder:
            fetch_archive(archive, folder, program.name)
    except DownloadError as error:
        say(f"{program.name} {archive.version}: not downloaded, {error}")
        return str(error)
    say(f"{program.name} {archive.version}: downloaded in {stopwatch} from {archive.url}")
    return ""


def _build_programs(programs: Sequence[Program], refused: str, caches: Path) -> dict[str, Path]:
    """Build programs of one module; `refused` says why they were not downloaded."""
    stopwatch = Stopwatch()
    together = ", ".join(f"{program.name} {program.version}" for program in programs)
    say(f"building {together} with Go (this happens once, and may take minutes)")
    made = caches / "programs"
    made.mkdir(exist_ok=True)
    try:
        build_go_programs(
            programs[0].module, {program.name: program.go_package_path for program in programs}, made, caches
        )
    except LabError as error:
        raise LabError(
            f"{together} cannot be had: not on PATH, not in {cache_folder()}; {refused}; {error}"
        ) from error
    for program in programs:
        with fill_folder_atomically(program.built_path.parent) as folder:
            (made / program.name).rename(folder / program.name)
    say(f"{together}: built in {stopwatch}, now in the cache ({cache_folder()})")
    return {program.name: program.built_path for program in programs}

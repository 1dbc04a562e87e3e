"""Official prebuilt archives, fetched from the projects' own sites and used only if a pinned checksum
matches.

A site that cannot be reached costs a few seconds once: it is not asked again in the same run.
"""

import hashlib
import os
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import requests

from lab.errors import LabError
from lab.progress import report_signs_of_life

_CONNECT_TIMEOUT_SECONDS = 3.0
_READ_TIMEOUT_SECONDS = 30.0
_CHUNK_BYTES = 1 << 20


class DownloadError(LabError):
    """Raised where an archive could not be fetched, or its checksum did not match; the program is then built
    or sought elsewhere.
    """


@dataclass(frozen=True, slots=True)
class Archive:
    """One official download. `checksum` is `sha256:...` or `sha512:...`, as its publisher gives it.

    `members` maps each program to its path in a tar archive; it is empty if the download is the program
    itself.
    """

    url: str
    version: str
    checksum: str
    members: Mapping[str, str] = field(default_factory=dict)


error_by_unreachable_host: dict[str, str] = {}
"""The error, as text, for each host that could not be reached in this run."""


def are_downloads_allowed() -> bool:
    """Return False when EUREKUBE_NO_DOWNLOAD is set to anything but 0."""
    return os.environ.get("EUREKUBE_NO_DOWNLOAD", "0") in ("", "0")


def fetch_archive(archive: Archive, folder: Path, program: str) -> None:
    """Put the archive's programs into the folder, executable; `program` is the file's name if the archive
    has no members.
    """
    download = folder / ".download"
    try:
        _download(archive, download)
        _verify_checksum(archive, download)
        if archive.members:
            _extract_programs(archive, download, folder)
        else:
            shutil.copyfile(download, folder / program)
            (folder / program).chmod(0o755)
    finally:
        download.unlink(missing_ok=True)


def _download(archive: Archive, target: Path) -> None:
    host = urlsplit(archive.url).netloc
    if host in error_by_unreachable_host:
        raise DownloadError(f"{host} could not be reached ({error_by_unreachable_host[host]})")
    received = 0
    try:
        with (
            report_signs_of_life(f"downloading {archive.url}", lambda: f"{received >> 20} MiB"),
            requests.get(
                archive.url, stream=True, timeout=(_CONNECT_TIMEOUT_SECONDS, _READ_TIMEOUT_SECONDS)
            ) as response,
            target.open("wb") as file,
        ):
            if response.status_code != requests.codes.ok:
                raise DownloadError(f"{archive.url} answered {response.status_code}")
            for chunk in response.iter_content(_CHUNK_BYTES):
                file.write(chunk)
                received += len(chunk)
    except requests.RequestException as error:
        error_by_unreachable_host[host] = _summarize_error(error)
        raise DownloadError(f"{host} could not be reached ({error_by_unreachable_host[host]})") from error


def _summarize_error(error: requests.RequestException) -> str:
    """Return the gist of a nested connection error, on one line."""
    text = str(error)
    for needle, gist in (
        ("NameResolutionError", "its name does not resolve"),
        ("ConnectTimeout", f"no connection within {_CONNECT_TIMEOUT_SECONDS:.0f} s"),
        ("CERTIFICATE_VERIFY_FAILED", "its certificate is not trusted"),
        ("Connection refused", "connection refused"),
        ("Proxy", "the proxy refused"),
    ):
        if needle in text or needle in type(error).__name__:
            return gist
    return text if len(text) <= 100 else text[:97] + "..."


def _verify_checksum(archive: Archive, download: Path) -> None:
    algorithm, _, expected = archive.checksum.partition(":")
    with download.open("rb") as file:
        actual = hashlib.file_digest(file, algorithm).hexdigest()
    if actual != expected:
        raise DownloadError(
            f"{archive.url} is refused: its {algorithm} is {actual}, "
            f"but {expected} is pinned in lab/programs.py"
        )


def _extract_programs(archive: Archive, download: Path, folder: Path) -> None:
    try:
        with tarfile.open(download) as tar:
            for program, member in archive.members.items():
                source = tar.extractfile(member)
                if source is None:
                    raise DownloadError(f"{archive.url} has no file {member}")
                with source, (folder / program).open("wb") as target:
                    shutil.copyfileobj(source, target, _CHUNK_BYTES)
                (folder / program).chmod(0o755)
    except (tarfile.TarError, KeyError) as error:
        raise DownloadError(f"{archive.url} could not be unpacked: {error}") from error

"""Changes to the packaged Eureka server that make it start faster."""

import zipfile
from pathlib import Path

import pytest

from lab import eureka_package
from lab.eureka import Java
from lab.eureka_package import cached_package_name, remove_signature

MANIFEST = b"Manifest-Version: 1.0\r\nMulti-Release: true\r\n"
DIGESTS = b"\r\nName: a/A.class\r\nSHA-256-Digest: AAAA\r\n\r\n"


def jar(path: Path, **more: bytes) -> Path:
    """Write a jar with one class and these files in META-INF."""
    with zipfile.ZipFile(path, "w") as written:
        written.writestr("META-INF/MANIFEST.MF", MANIFEST + DIGESTS)
        written.writestr("a/A.class", b"class")
        for name, content in more.items():
            written.writestr(f"META-INF/{name.replace('_', '.')}", content)
    return path


def test_a_signature_is_taken_away_and_nothing_else(tmp_path: Path) -> None:
    """``remove_signature`` removes a jar's signature files and digests, and keeps manifest and other
    files.
    """
    signed = jar(tmp_path / "signed.jar", BC_SF=b"signature", BC_DSA=b"key", LICENSE_txt=b"free")
    remove_signature(signed)
    with zipfile.ZipFile(signed) as read:
        assert read.testzip() is None
        assert read.namelist() == ["META-INF/MANIFEST.MF", "a/A.class", "META-INF/LICENSE.txt"]
        assert read.read("META-INF/MANIFEST.MF") == MANIFEST.strip() + b"\n\n"
        assert read.read("a/A.class") == b"class"
    assert [path.name for path in tmp_path.iterdir()] == ["signed.jar"]


def test_a_jar_without_a_signature_is_left_alone(tmp_path: Path) -> None:
    """A jar without a signature is not rewritten."""
    plain = jar(tmp_path / "plain.jar")
    before = plain.read_bytes()
    remove_signature(plain)
    assert plain.read_bytes() == before


def test_what_would_be_packaged_otherwise_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package name depends on the Java version, the server version and the JVM options, because a class
    archive fits only these.
    """
    java = Java(Path("/usr/bin/java"), "17.0.15")
    names = {
        cached_package_name(java, "2025.0"),
        cached_package_name(java, "2025.1"),
        cached_package_name(Java(java.path, "21.0.1"), "2025.0"),
    }
    assert cached_package_name(java, "2025.0") in names
    monkeypatch.setattr(eureka_package, "JVM_OPTIONS", ("-Xint",))
    names.add(cached_package_name(java, "2025.0"))
    assert len(names) == 4

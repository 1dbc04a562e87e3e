"""Valid and expired certificates for servers and clients of this machine."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lab.ports import HOST


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files of a self-signed certificate and its key."""

    certificate: Path
    key: Path


def make_certificate(directory: Path, name: str, *, is_expired: bool = False) -> Certificate:
    """Make a certificate for 127.0.0.1 with openssl, valid for a day or expired yesterday."""
    files = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
    (directory / "index.txt").touch()
    config = directory / "ca.cnf"
    config.write_text(
        f"""
        [ca]
        default_ca = us
        [us]
        database = {directory}/index.txt
        new_certs_dir = {directory}
        rand_serial = yes
        default_md = sha256
        policy = any
        unique_subject = no
        x509_extensions = server
        [any]
        commonName = supplied
        [server]
        subjectAltName = IP:{HOST}
        basicConstraints = critical, CA:TRUE
        [req]
        distinguished_name = req_name
        [req_name]
        """.replace("        ", "")
    )
    request = directory / f"{name}.csr"
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", files.key)
    _openssl("req", "-config", config, "-new", *new_key, "-subj", f"/CN={name}", "-out", request)
    now = datetime.now(UTC)
    first, last = now - timedelta(days=2), now + timedelta(days=-1 if is_expired else 1)
    dates = ("-startdate", f"{first:%Y%m%d%H%M%SZ}", "-enddate", f"{last:%Y%m%d%H%M%SZ}")
    sign = ("ca", "-config", config, "-batch", "-notext", "-selfsign", "-keyfile", files.key)
    _openssl(*sign, *dates, "-in", request, "-out", files.certificate)
    return files


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr

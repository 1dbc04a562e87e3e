"""The package `eurekube-operator`, made from `eurekube-provider`'s wheel: the same files without a dependency
on Pulumi.

The reasons: docs/decisions/0030-the-operator-alone-is-a-package-of-its-own.md.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import io
import re
import zipfile
from pathlib import Path

PACKAGE_NAME = "eurekube-operator"
PROVIDER_FILE_PREFIX = "eurekube_provider"
OPERATOR_FILE_PREFIX = PACKAGE_NAME.replace("-", "_")
EXTRAS = ("cli", "operator", "zookeeper")
"""Extras of `eurekube-provider` whose requirements this package always has."""

SUMMARY = "Joins Netflix Eureka and Kubernetes service discovery: the in-cluster operator and its commands"


def write_operator_wheel(wheel: Path) -> Path:
    """Write the operator's wheel beside the given one, the same bytes for the same wheel; return its path.

    :param wheel: of `eurekube-provider`.
    """
    made = wheel.with_name(wheel.name.replace(PROVIDER_FILE_PREFIX, OPERATOR_FILE_PREFIX, 1))
    records = []
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            content = source.read(entry)
            folder, _, name = entry.filename.partition("/")
            if folder.endswith(".dist-info"):
                folder = folder.replace(PROVIDER_FILE_PREFIX, OPERATOR_FILE_PREFIX, 1)
                if name == "METADATA":
                    content = adapt_metadata(content.decode()).encode()
                elif name == "entry_points.txt":
                    content = adapt_entry_points(content.decode()).encode()
                elif name == "RECORD":
                    records.append(f"{folder}/{name},,")
                    content = ("\n".join(records) + "\n").encode()
            entry.filename = f"{folder}/{name}"
            if name != "RECORD":
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                records.append(f"{entry.filename},sha256={digest},{len(content)}")
            target.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return made


def adapt_metadata(text: str) -> str:
    """Return the metadata with this package's name, with the requirements of its extras as plain ones, and
    without Pulumi.
    """
    head, separator, page = text.partition("\n\n")
    lines = []
    for line in head.splitlines():
        name, _, value = line.partition(": ")
        if name == "Requires-Dist":
            requirement, _, extra = value.partition("; extra == ")
            if not re.match(r"pulumi\b", requirement) and extra.strip("'\"") in ("", *EXTRAS):
                lines.append(f"{name}: {requirement}")
        elif name != "Provides-Extra":
            own = {"Name": PACKAGE_NAME, "Summary": SUMMARY}
            lines.append(f"{name}: {own[name]}" if name in own else line)
    return "\n".join(dict.fromkeys(lines)) + separator + page


def adapt_entry_points(text: str) -> str:
    """Return the entry points without Pulumi's plugin and without the pytest plugin."""
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    parser.remove_section("pytest11")
    parser.remove_option("console_scripts", "pulumi-resource-eurekube")
    written = io.StringIO()
    parser.write(written)
    return written.getvalue()

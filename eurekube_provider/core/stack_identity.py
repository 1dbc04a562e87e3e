"""The identity of a Pulumi stack, the same for all its names and for all folders from which it is run."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

DEFAULT_ORGANIZATION = "organization"
"""The organization on backends that have none: a stack's name may contain it or not."""

_FILE_SCHEME = "file://"

PROJECT_FILE_NAMES = ("Pulumi.yaml", "Pulumi.yml", "Pulumi.json")
"""The names of Pulumi's project file; a folder with one of them is a project."""


def stack_identity(stack_name: str, project: Mapping[str, Any], backend: str, work_dir: str) -> str:
    """Return a text that is equal for two names of one stack, such as ``dev`` and ``organization/shop/dev``.

    :param stack_name: ``stack``, ``organization/stack`` or ``organization/project/stack``.
    :param project: the content of the project's file.
    :param backend: PULUMI_BACKEND_URL; empty where that is not set.
    :param work_dir: the project's folder, without symbolic links.
    """
    parts = stack_name.split("/")
    organization = parts[0] if len(parts) > 1 else ""
    if organization == DEFAULT_ORGANIZATION:
        organization = ""
    name = parts[1] if len(parts) == 3 else str(project.get("name") or work_dir)
    own = project.get("backend")
    url = backend or str((own.get("url") if isinstance(own, Mapping) else "") or "")
    if url.startswith(_FILE_SCHEME):
        path = url.removeprefix(_FILE_SCHEME).partition("?")[0]
        url = _FILE_SCHEME + (
            path if path.startswith("~") else posixpath.normpath(posixpath.join(work_dir, path))
        )
    return "\0".join((url.rstrip("/"), organization, name, parts[-1]))

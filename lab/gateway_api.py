"""The CRDs of the Gateway API, which Kubernetes does not bring, from its Go module."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from lab.builds import find_tool, go_environment, temporary_go_caches
from lab.cache import cache_folder, fill_folder_atomically, hold_cache_lock
from lab.errors import LabError

_VERSION = "1.4.1"
_VERSIONED_GO_MODULE = f"sigs.k8s.io/gateway-api@v{_VERSION}"
_MODULE_HASH = "h1:NPxFutNkKNa8UfLd2CMlEuhIPMQgDQ6DXNKG9sHbJU8="
"""The hash of the module, as go.sum would have it."""

_CRD_NAMES = ("gateways", "httproutes")


def gateway_api_crds() -> list[dict[str, Any]]:
    """Return the CRDs of Gateway and HTTPRoute, of the channel standard."""
    folder = cache_folder() / "gateway-api" / _VERSION
    with hold_cache_lock("gateway-api"):
        if not folder.is_dir():
            with fill_folder_atomically(folder) as content:
                _download_crds(content)
    return [yaml.safe_load((folder / f"{kind}.yaml").read_text()) for kind in _CRD_NAMES]


def _download_crds(folder: Path) -> None:
    go = find_tool("go")
    if go is None:
        raise LabError("Go is missing, by which the CRDs of the Gateway API are downloaded")
    with temporary_go_caches() as caches:
        done = subprocess.run(
            [str(go), "mod", "download", "-json", _VERSIONED_GO_MODULE],
            check=False,
            cwd=caches,
            env=go_environment(go, caches),
            capture_output=True,
            text=True,
            timeout=120,
        )
        answer = json.loads(done.stdout or "{}")
        if done.returncode or answer.get("Sum") != _MODULE_HASH:
            raise LabError(
                f"{_VERSIONED_GO_MODULE} cannot be had:"
                f" {answer.get('Error') or answer.get('Sum') or done.stderr}"
            )
        for kind in _CRD_NAMES:
            file = Path(answer["Dir"], "config/crd/standard", f"gateway.networking.k8s.io_{kind}.yaml")
            shutil.copyfile(file, folder / f"{kind}.yaml")

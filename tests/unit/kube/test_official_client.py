"""The official client is imported without what hardly any process needs."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import sys
import eurekube_provider.operator.__main__
assert "requests" not in sys.modules, "requests was imported"
assert "requests_oauthlib" not in sys.modules, "requests_oauthlib was imported"
from kubernetes.config import kube_config
session = kube_config.OAuth2Session(client_id="a")
import requests_oauthlib
import kubernetes
assert callable(kubernetes.stream.stream), "the module of the package is not the real one"
from kubernetes.stream import stream
assert type(session) is requests_oauthlib.OAuth2Session, type(session)
assert callable(stream)
"""


def test_an_operator_imports_requests_only_when_it_needs_them() -> None:
    """Neither ``requests`` nor the OAuth sessions are imported, which a kubeconfig may need later."""
    subprocess.run([sys.executable, "-c", _CODE], check=True)

"""The official client is imported without what hardly any process needs."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import sys
import eurekube_provider.operator.__main__
assert "requests" not in sys.modules, "requests was imported"
assert "requests_oauthlib" not in sys.modules, "requests_oauthlib was imported"
assert "pydantic" not in sys.modules, "pydantic was imported"
from kubernetes.config import kube_config
made = kube_config.ApiClient()
from kubernetes.client import ApiClient, CoreV1Api
from kubernetes.client import api_client
assert ApiClient is api_client.ApiClient, "the class of the package is not the real one"
assert type(made) is ApiClient, type(made)
assert type(CoreV1Api().api_client) is ApiClient
session = kube_config.OAuth2Session(client_id="a")
import requests_oauthlib
import kubernetes
assert callable(kubernetes.stream.stream), "the module of the package is not the real one"
from kubernetes.stream import stream
assert type(session) is requests_oauthlib.OAuth2Session, type(session)
assert callable(stream)
"""


def test_an_operator_imports_requests_and_pydantic_only_when_it_needs_them() -> None:
    """Neither ``requests`` nor the OAuth sessions nor typed answers are imported; each comes whole once
    somebody in this process uses it.
    """
    subprocess.run([sys.executable, "-c", _CODE], check=True)

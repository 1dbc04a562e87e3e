"""The arguments of an EurekubeOperator: what follows from them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider import EurekubeOperatorArgs, __version__
from eurekube_provider.resources.program import ProgramError


def args(**more: Any) -> EurekubeOperatorArgs:
    """With a service URL."""
    return EurekubeOperatorArgs(**{"eureka_urls": ["http://eureka:8761/eureka"], **more})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, f"ghcr.io/eurekube/eurekube-operator:{__version__}"),
        ({"tag": "edge"}, "ghcr.io/eurekube/eurekube-operator:edge"),
        ({"image": "registry:5000/eurekube", "tag": "1.2"}, "registry:5000/eurekube:1.2"),
        ({"image": "registry:5000/eurekube"}, f"registry:5000/eurekube:{__version__}"),
        ({"image": "registry:5000/eurekube:own"}, "registry:5000/eurekube:own"),
        ({"image": "eurekube@sha256:0123"}, "eurekube@sha256:0123"),
    ],
)
def test_image_and_tag(given: dict[str, str], expected: str) -> None:
    """This version of the default image, unless told otherwise."""
    assert args(**given).image_reference == expected


def test_ports_of_eureka() -> None:
    """Those of the URLs, and of their schemes where they name none."""
    urls = ["http://a:8761/eureka", "https://b/eureka", "http://c/eureka", "http://d:8761/eureka"]
    assert args(eureka_urls=urls).eureka_ports == [80, 443, 8761]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"eureka_urls": []}, "eureka_urls needs at least one service URL"),
        ({"eureka_urls": ["http://me:s3cret@eureka/eureka"]}, "eureka_urls must not carry credentials"),
        ({"replicas": "3"}, "replicas must be a whole number from 0 on"),
        ({"environment": {"WEB_ADDRESS": ""}}, "environment must not set WEB_ADDRESS: probes and Service"),
        (
            {"environment": {"LEASE_NAME": "x"}},
            "environment must not set LEASE_NAME: the rights name the Lease",
        ),
        ({"environment": {"OPERATOR_NAME": "x"}}, "environment must not set OPERATOR_NAME"),
        ({"image": "a:1", "tag": "2"}, "the image 'a:1' has a tag or digest already"),
        ({"egress_ports": [8080]}, "egress_ports means nothing without network_policy"),
        ({"web_namespaces": ["monitoring"]}, "web_namespaces means nothing without network_policy"),
        ({"network_policy": True, "egress_ports": [0]}, "egress_ports: 0 must be a port from 1 to 65535"),
        ({"cluster_name": "A_B"}, "cluster name 'A_B'"),
        ({"targets": {"ci": "webhook"}}, "targets: ci must be an object with a kind"),
        ({"targets": {"prod": {"kind": "pulumiStack", "stack": "prod"}}}, "stack must be NAMESPACE/NAME"),
        (
            {"targets": {"ci": {"kind": "webhook", "secret-file": "/etc/eurekube-targets/key"}}},
            "targets: ci: secret-file is /etc/eurekube-targets/key: add 'key' to target_secrets",
        ),
        ({"target_secrets": {"key": "s3cret"}}, "target_secrets means nothing without targets"),
        ({"targets": {"ci": {"kind": "webhook"}}, "environment": {"CONFIG": "x"}}, "must not set CONFIG"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], sentence: str) -> None:
    """In one sentence, before anything is made, and without a credential in it."""
    with pytest.raises(ProgramError) as refused:
        args(**given).check()
    assert str(refused.value).startswith("EurekubeOperator: ")
    assert sentence in str(refused.value)
    assert "s3cret" not in str(refused.value)

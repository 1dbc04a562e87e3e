"""Messages when the lab cannot have a network namespace."""

import sys
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.kubelet import Kubelet
from lab.netns import is_in_lab_network, network_unavailable_reason


@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are a thing of Linux")
def test_a_tool_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message names missing tools and the packages to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (
        network_unavailable_reason() == "unshare, nsenter, ip, mount missing: install util-linux and iproute2"
    )


def test_real_pods_are_refused_outside(tmp_path: Path) -> None:
    """Outside a network namespace a kubelet is refused, as it would add pod addresses to this machine."""
    assert not is_in_lab_network()
    with pytest.raises(LabError, match=r"lab\.netns"):
        Kubelet(tmp_path / "kubeconfig", ["node-1"], tmp_path)

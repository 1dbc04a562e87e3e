"""Settings of this project's own program in a stack's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.resources.stack_settings import StackSettings


def test_the_kubeconfig_is_written_into_the_state_as_it_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path stays relative, so that machines with the project in different folders have equal
    states.
    """
    said = {"url": "http://eureka:8761/eureka", "kubeconfig": ".lab/kubeconfig"}
    for module in ("program", "stack_settings"):
        monkeypatch.setattr(f"eurekube_provider.resources.{module}.program_setting", said.get)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=str(tmp_path / ".lab" / "kubeconfig")):
        StackSettings.load()
    (tmp_path / ".lab").mkdir()
    (tmp_path / ".lab" / "kubeconfig").touch()
    assert str(StackSettings.load().kubeconfig) == ".lab/kubeconfig"
    said["kubeconfig"] = str(tmp_path / ".lab" / "kubeconfig")
    assert str(StackSettings.load().kubeconfig) == said["kubeconfig"]

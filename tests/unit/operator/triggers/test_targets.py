"""Targets in the configuration file: their keys, the namespaces that may use them, and errors."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.schedule import RunLimits
from eurekube_provider.core.stack_refresh import StackAction, StackRefresh
from eurekube_provider.core.syncer import Selector
from eurekube_provider.operator.settings import load_settings
from eurekube_provider.operator.triggers.targets import (
    AutomationStack,
    PulumiStack,
    Target,
    Webhook,
    WebhookFormat,
)

URL = {"EUREKA_URL": "http://h/e"}
SECRET = "s3cret"


def targets(tmp_path: Path, text: str) -> dict[str, Target]:
    """Return the targets of a configuration file with ``text`` below ``targets``."""
    for name in ("key", "authorization"):
        (tmp_path / name).write_text(f"{SECRET}-{name}\n")
    file = tmp_path / "config.yaml"
    body = textwrap.indent(textwrap.dedent(text).replace("DIR", str(tmp_path)), "  ")
    file.write_text(f"targets:\n{body}\n")
    return dict(load_settings({"config": str(file)}, URL).targets)


def refresh(
    action: StackAction = StackAction.UP,
    namespace: str = "shop",
    debounce_seconds: int | None = None,
    interval_seconds: int | None = None,
) -> StackRefresh:
    """Return a StackRefresh."""
    selector = Selector(namespace, "rating")
    return StackRefresh(namespace, "rating", selector, action, "t", debounce_seconds, interval_seconds)


def test_one_of_each_kind(tmp_path: Path) -> None:
    """Each kind of target has keys of its own and the common ones."""
    found = targets(
        tmp_path,
        """
        prod: {kind: pulumiStack, namespaces: [shop, billing], stack: pulumi/shop.prod, actions: up}
        ci:
          kind: webhook
          namespaces: '*'
          url: https://example.com/hook
          secret-file: DIR/key
          authorization-file: DIR/authorization
          form: repository-dispatch
          timeout-seconds: 30
        lab:
          kind: automation
          namespaces: [shop]
          stack: dev
          work-dir: DIR
          shortest-debounce-seconds: 4
          shortest-interval-seconds: 300
        """,
    )
    assert found == {
        "prod": Target(
            "prod",
            PulumiStack("pulumi", "shop.prod"),
            frozenset({"shop", "billing"}),
            frozenset({StackAction.UP}),
        ),
        "ci": Target(
            "ci",
            Webhook(
                "https://example.com/hook",
                f"{SECRET}-key",
                f"{SECRET}-authorization",
                WebhookFormat.REPOSITORY_DISPATCH,
            ),
            frozenset({"*"}),
            timeout_seconds=30.0,
        ),
        "lab": Target(
            "lab",
            AutomationStack("dev", str(tmp_path)),
            frozenset({"shop"}),
            shortest_debounce_seconds=4.0,
            shortest_interval_seconds=300.0,
        ),
    }
    shown = repr(found)
    assert SECRET not in shown
    assert "example.com" not in shown  # the URLs of deployment hooks are secrets themselves


def test_the_url_of_a_webhook_may_be_a_secret(tmp_path: Path) -> None:
    """The URL is read from ``url-file``, and does not appear in the target's repr."""
    (tmp_path / "url").write_text("https://example.com/hook?token=s3cret\n")
    found = targets(
        tmp_path, "ci: {kind: webhook, namespaces: '*', url-file: DIR/url, secret-file: DIR/key}"
    )["ci"]
    assert found.run_method == Webhook("https://example.com/hook?token=s3cret", f"{SECRET}-key")
    assert "example.com" not in repr(found)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("A: {}", "targets: 'A' must be a name of small letters"),
        ("1: {}", "targets: 1 must be a name of small letters"),
        ("a: x", "targets: a: must be keys such as kind, not str"),
        ("a: {}", "targets: a: there is no kind: add one of pulumiStack, webhook, automation"),
        ("a: {kind: hook}", "targets: a: kind: 'hook' must be one of pulumiStack, webhook, automation"),
        ("a: {kind: automation, stack: s, work-dir: DIR}", "targets: a: there is no namespaces: name those"),
        ("a: {kind: automation, namespaces: x, stack: s}", "targets: a: there is no work-dir"),
        (
            "a: {kind: automation, namespaces: x, stack: s, work-dir: /none}",
            "targets: a: work-dir: '/none' is no directory",
        ),
        ("a: {kind: pulumiStack, namespaces: x, stack: prod}", "targets: a: stack: 'prod' must be NAMESPACE"),
        (
            "a: {kind: pulumiStack, namespaces: x, stack: a/b, url: http://h}",
            "targets: a: url: there is no such key",
        ),
        (
            "a: {kind: pulumiStack, namespaces: x, stack: a/b, actions: destroy}",
            "targets: a: actions: 'destroy' must be some of Refresh, Up and Preview",
        ),
        ("a: {kind: webhook, namespaces: x, url: ftp://h}", "targets: a: url: 'ftp://h' must start with"),
        (
            "a: {kind: webhook, namespaces: x, url: http://h}",
            "a: url: the receiver must be able to tell",
        ),
        (
            "a: {kind: webhook, namespaces: x, url: http://h, secret: x}",
            "a: secret: a secret must not stand in",
        ),
        (
            "a: {kind: webhook, namespaces: x, url: http://h, authorization-file: DIR/config.yaml}",
            "/config.yaml has more than one line: write the secret into it, and nothing else, on one line",
        ),
        ("a: {kind: webhook, namespaces: x, secret-file: DIR/key}", "targets: a: give url or, where a part"),
        ("a: {kind: webhook, namespaces: x, url: http://h, url-file: DIR/key}", "targets: a: give url or,"),
        (
            "a: {kind: webhook, namespaces: x, url-file: DIR/key, secret-file: DIR/key}",
            "targets: a: url-file: the URL in",
        ),
        (
            "a: {kind: webhook, namespaces: x, url: http://h, secret-file: /none}",
            "a: secret-file: /none cannot be read (No such file",
        ),
    ],
)
def test_what_is_wrong_with_a_target(tmp_path: Path, text: str, sentence: str) -> None:
    """The error names the target, the key, the fault and a value that works."""
    with pytest.raises(ConfigurationError) as caught:
        targets(tmp_path, text)
    assert sentence in str(caught.value)


def test_who_may_use_a_target() -> None:
    """StackRefreshes of the target's namespaces may use it; a star stands for all."""
    target = Target("prod", AutomationStack("dev", "/"), frozenset({"shop"}))
    assert target.run_limits_of(refresh()) == RunLimits(5.0, 60.0)
    with pytest.raises(ConfigurationError, match="'prod', which the namespace billing may not use"):
        target.run_limits_of(refresh(namespace="billing"))
    anybody = Target("prod", AutomationStack("dev", "/"), frozenset({"*"}))
    assert anybody.run_limits_of(refresh(namespace="billing")) == RunLimits(5.0, 60.0)


def test_what_may_be_asked_of_a_target() -> None:
    """A StackRefresh may use the target's actions, and no shorter times than the target allows."""
    target = Target(
        "prod",
        AutomationStack("dev", "/"),
        frozenset({"shop"}),
        frozenset({StackAction.PREVIEW, StackAction.REFRESH}),
        shortest_debounce_seconds=10.0,
        shortest_interval_seconds=20.0,
    )
    asked = refresh(StackAction.REFRESH, debounce_seconds=10, interval_seconds=21)
    assert target.run_limits_of(asked) == RunLimits(10.0, 21.0)
    assert target.run_limits_of(refresh(StackAction.REFRESH)) == RunLimits(10.0, 60.0)
    with pytest.raises(ConfigurationError, match=r"spec\.action is Up, and .* allows Preview, Refresh only"):
        target.run_limits_of(refresh())
    with pytest.raises(ConfigurationError, match=r"spec\.debounceSeconds is 9, .* no less than 10"):
        target.run_limits_of(refresh(StackAction.REFRESH, debounce_seconds=9))
    with pytest.raises(ConfigurationError, match=r"spec\.minIntervalSeconds is 19, .* no less than 20"):
        target.run_limits_of(refresh(StackAction.REFRESH, interval_seconds=19))

"""The operator's flags and environment: what they mean, and one sentence for each that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.kube.elector import Timing
from eurekube_provider.operator.settings import Settings, parser, settings_from

URL = {"EUREKA_URL": "http://a/eureka"}
SECRET = "pa55-w0rd"


def settings(*flags: str, **environment: str) -> Settings:
    """The settings of these flags and variables, with a Eureka URL."""
    return settings_from(flags, {**URL, **environment})


def test_defaults() -> None:
    """A Eureka URL is all that must be said."""
    result = settings(POD_NAME="pod-1")
    assert result == Settings(connection=result.connection, pod_name="pod-1")
    assert result.connection.service_urls == ("http://a/eureka",)
    assert (result.resync_seconds, result.log_format, result.log_level) == (15.0, "json", "INFO")


def test_flags_win_over_the_environment() -> None:
    """Where both say something, the flag counts."""
    result = settings("--cluster-name", "flag", "--eureka-url=http://b/e", CLUSTER_NAME="variable")
    assert result.cluster_name == "flag"
    assert result.connection.service_urls == ("http://b/e",)


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("OPERATOR_NAME", "blue", "operator_name", "blue"),
        ("CLUSTER_NAME", "eks", "cluster_name", "eks"),
        ("TAKE_OVER_CLUSTER", "True", "take_over_cluster", True),
        ("WATCH_NAMESPACE", "a, b,,a", "watch_namespaces", ("a", "b")),
        ("CROSS_NAMESPACE", "a=b,c=*", "cross_namespace", frozenset({("a", "b"), ("c", "*")})),
        ("CONTEXT", "dev", "context", "dev"),
        ("RESYNC_SECONDS", "0.5", "resync_seconds", 0.5),
        ("LEADER_ELECT", "false", "leader_elect", False),
        ("LEASE_NAME", "one.lease", "lease_name", "one.lease"),
        ("LEASE_NAMESPACE", "ops", "lease_namespace", "ops"),
        ("LEASE_DURATION_SECONDS", "30", "lease_timing", Timing(lease_duration_seconds=30)),
        ("RENEW_DEADLINE_SECONDS", "8", "lease_timing", Timing(renew_deadline_seconds=8)),
        ("RETRY_PERIOD_SECONDS", "1", "lease_timing", Timing(retry_period_seconds=1)),
        ("RELEASE_AFTER_SECONDS", "5", "release_after_seconds", 5.0),
        ("WEB_ADDRESS", "[::1]:80", "web_address", ("::1", 80)),
        ("WEB_ADDRESS", "", "web_address", None),
        ("LOG_FORMAT", "text", "log_format", "text"),
        ("LOG_LEVEL", "debug", "log_level", "DEBUG"),
    ],
)
def test_the_environment_says_the_same(variable: str, value: str, field: str, expected: object) -> None:
    """Each flag's variable is its name in capitals, and both are read alike."""
    flag = "--" + variable.lower().replace("_", "-")
    assert getattr(settings(**{variable: value}), field) == expected
    assert getattr(settings(flag, value), field) == expected


def test_the_lease_is_the_operators_own() -> None:
    """Named for it, and in its pod's namespace unless told otherwise."""
    assert settings(OPERATOR_NAME="blue").lease_name == "blue-leader"
    assert settings(POD_NAMESPACE="ops").lease_namespace == "ops"
    assert settings(POD_NAMESPACE="ops", LEASE_NAMESPACE="other").lease_namespace == "other"
    with pytest.raises(ConfigurationError, match=r"'Blue-leader' must be .* set --lease-name"):
        settings(OPERATOR_NAME="Blue")
    with pytest.raises(ConfigurationError, match="--renew-deadline-seconds: 20"):
        settings(RENEW_DEADLINE_SECONDS="20")


def test_kubeconfig_of_the_environment_is_the_clients() -> None:
    """KUBECONFIG may list several files, and is left to the Kubernetes client."""
    assert settings(KUBECONFIG="/a:/b").kubeconfig is None
    assert settings("--kubeconfig", "/a").kubeconfig == "/a"


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--resync-seconds", "soon"),
        ("--resync-seconds", "0"),
        ("--resync-seconds", "nan"),
        ("--resync-seconds", "1e9"),
        ("--web-address", "8080"),
        ("--web-address", "::1:8080"),
        ("--web-address", "host:99999"),
        ("--web-address", "host:http"),
        ("--log-format", "xml"),
        ("--log-level", "LOUD"),
        ("--take-over-cluster", "yes"),
        ("--cross-namespace", "a"),
        ("--cross-namespace", "=b"),
    ],
)
def test_a_value_that_cannot_be_used(flag: str, value: str) -> None:
    """The message names the flag and repeats the value."""
    with pytest.raises(ConfigurationError) as caught:
        settings(flag, value)
    assert str(caught.value).startswith(f"{flag}: ")
    assert value.upper() in str(caught.value).upper()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--cluster-name", "EKS", "cluster name 'EKS'"),
        ("--eureka-ca-file", "/none.pem", "/none.pem"),
        ("--eureka-url", "a:8761", "Eureka URL 'a:8761'"),
    ],
)
def test_values_that_others_check(flag: str, value: str, words: str) -> None:
    """Names, files and URLs are checked by those who use them, who say what is wrong with which."""
    with pytest.raises(ConfigurationError) as caught:
        settings(flag, value)
    assert words in str(caught.value)


def test_no_eureka() -> None:
    """Without a URL the message says where to set one."""
    with pytest.raises(ConfigurationError, match="--eureka-url or EUREKA_URL"):
        settings_from([], {})


def test_secrets_are_no_flags() -> None:
    """Flags can be read by every process of the machine: none takes a secret."""
    flags = {flag for action in parser()._actions for flag in action.option_strings}
    assert not [flag for flag in flags if "password" in flag or "secret" in flag]


def test_every_flag_names_its_variable() -> None:
    """Whoever reads the help finds the environment's name of each flag."""
    for action in parser()._actions:
        if action.dest != "help":
            assert action.dest.upper() in str(action.help)


def test_secrets_from_files(tmp_path: Path) -> None:
    """A mounted file wins over a variable, and its line end is no part of the secret."""
    path = tmp_path / "password"
    path.write_text(f"{SECRET}\n")
    result = settings(EUREKA_USER="ann", EUREKA_PASSWORD="x", EUREKA_PASSWORD_FILE=str(path))
    assert result.connection.password == SECRET


def test_a_secrets_file_that_is_not_there(tmp_path: Path) -> None:
    """The message names the variable, the file and why."""
    with pytest.raises(
        ConfigurationError, match=r"EUREKA_PASSWORD_FILE: .*none cannot be read \(No such file"
    ):
        settings(EUREKA_PASSWORD_FILE=str(tmp_path / "none"))


def test_nothing_shows_a_secret() -> None:
    """Settings can be printed: no password and no webhook key is in them."""
    result = settings(
        "--webhook-url=http://h/", EUREKA_USER="ann", EUREKA_PASSWORD=SECRET, WEBHOOK_SECRET=f"key-{SECRET}"
    )
    assert result.webhook is not None
    assert result.webhook.secret == f"key-{SECRET}"
    assert SECRET not in repr(result)


def test_a_webhook() -> None:
    """A webhook has its URL, key, patterns and quiet time."""
    webhook = settings(
        "--webhook-url=https://h/x",
        "--webhook-services=shop/rating,*/order",
        WEBHOOK_SECRET=SECRET,
        WEBHOOK_DEBOUNCE_SECONDS="1.5",
    ).webhook
    assert webhook is not None
    assert (webhook.url, webhook.services, webhook.debounce_seconds) == (
        "https://h/x",
        ("shop/rating", "*/order"),
        1.5,
    )


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "--webhook-url needs a key"),
        ({"WEBHOOK_SECRET": "x", "WEBHOOK_URL": "h/x"}, "--webhook-url: 'h/x'"),
        ({"WEBHOOK_SECRET": "x", "WEBHOOK_SERVICES": "rating"}, "--webhook-services: 'rating'"),
        ({"WEBHOOK_SECRET": "x", "WEBHOOK_DEBOUNCE_SECONDS": "x"}, "--webhook-debounce-seconds: 'x'"),
    ],
)
def test_a_webhook_that_cannot_work(environment: dict[str, str], words: str) -> None:
    """Each part of a webhook that is wrong is named by its flag."""
    with pytest.raises(ConfigurationError) as caught:
        settings(**{"WEBHOOK_URL": "http://h/", **environment})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("pairs", "source", "target", "expected"),
    [
        ("", "a", "a", True),
        ("", "a", "b", False),
        ("a=b", "a", "b", True),
        ("a=b", "b", "a", False),
        ("a=*", "a", "z", True),
        ("*=b", "z", "b", True),
        ("*=*", "y", "z", True),
        ("a=b", "c", "b", False),
    ],
)
def test_who_may_select_where(pairs: str, source: str, target: str, expected: bool) -> None:
    """Other namespaces' Services may be published only where a pair allows it."""
    assert settings(CROSS_NAMESPACE=pairs).may_select(source, target) is expected


def test_watched_namespaces() -> None:
    """All namespaces are watched, or those that are named."""
    assert settings().watches("any")
    assert settings(WATCH_NAMESPACE="a").watches("a")
    assert not settings(WATCH_NAMESPACE="a").watches("b")

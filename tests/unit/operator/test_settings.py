"""The operator's flags, environment and file: what they mean, and the error for each unusable value."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.kube.elector import ElectionTiming
from eurekube_provider.operator.__main__ import add_flags
from eurekube_provider.operator.options import TEXT_TYPE, Option, flag_or_environment_texts
from eurekube_provider.operator.settings import ALL_OPTIONS, Settings, add_setting_flags, load_settings
from scripts.reference import flags_page

ROOT = Path(__file__).parents[3]
URL = {"EUREKA_URL": "http://a/eureka"}
SECRET = "pa55-w0rd"


def parser() -> argparse.ArgumentParser:
    """Return a parser of the operator's flags."""
    result = argparse.ArgumentParser(allow_abbrev=False)
    add_setting_flags(result)
    return result


def settings(*flags: str, **environment: str) -> Settings:
    """Return the settings from these flags and variables, with a Eureka URL."""
    return load_settings(vars(parser().parse_args(flags)), {**URL, **environment})


def default(of: Settings) -> Connection:
    """Return the connection that --eureka-url describes."""
    return of.connections["default"]


def test_defaults() -> None:
    """A Eureka URL is the only required setting."""
    result = settings(POD_NAME="pod-1")
    assert result == Settings(connections=result.connections, pod_name="pod-1", lease_name="eurekube-leader")
    assert default(result) == Connection(("http://a/eureka",))
    assert (result.resync_seconds, result.log_format, result.log_level) == (15.0, "auto", "INFO")


def test_flags_win_over_the_environment() -> None:
    """A flag wins over its variable; an empty flag or variable counts as not given."""
    result = settings("--cluster-name", "flag", "--eureka-url=http://b/e", CLUSTER_NAME="variable")
    assert result.cluster_name == "flag"
    assert default(result).service_urls == ("http://b/e",)
    assert settings("--cluster-name=", CLUSTER_NAME="variable").cluster_name == "variable"
    assert settings(CLUSTER_NAME=" ").cluster_name is None


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("OPERATOR_NAME", "blue", "operator_name", "blue"),
        ("CLUSTER_NAME", "eks", "cluster_name", "eks"),
        ("TAKE_OVER_CLUSTER", "True", "take_over_cluster", True),
        ("WATCH_NAMESPACE", "a, b,,a", "watch_namespaces", ("a", "b")),
        ("CROSS_NAMESPACE", "a=b,c=*", "cross_namespace", frozenset({("a", "b"), ("c", "*")})),
        ("PUBLISH", "a=X", "publish", frozenset({("a", "X")})),
        ("RESERVE", "a=X,b=*", "reserve", frozenset({("a", "X"), ("b", "*")})),
        ("CONTEXT", "dev", "context", "dev"),
        ("CLUSTER_DOMAIN", "example.org.", "cluster_domain", "example.org"),
        ("LEADER_ELECT", "false", "leader_elect", False),
        ("LEASE_NAME", "one.lease", "lease_name", "one.lease"),
        ("LEASE_NAMESPACE", "ops", "lease_namespace", "ops"),
        ("LEASE_DURATION_SECONDS", "30", "lease_timing", ElectionTiming(lease_duration_seconds=30)),
        ("RENEW_DEADLINE_SECONDS", "8", "lease_timing", ElectionTiming(renew_deadline_seconds=8)),
        ("RETRY_PERIOD_SECONDS", "1", "lease_timing", ElectionTiming(retry_period_seconds=1)),
        ("RELEASE_AFTER_SECONDS", "5", "release_after_seconds", 5.0),
        ("RESYNC_SECONDS", "0.5", "resync_seconds", 0.5),
        ("ADVERTISE_FROM", "", "advertise_from", ()),
        ("ADVERTISE_FROM", "ingress, Gateway,", "advertise_from", ("Ingress", "Gateway")),
        ("DRAIN_SECONDS", "60", "needed_drain_seconds", 60),
        ("DRAIN_SECONDS", "0", "needed_drain_seconds", 0),
        ("WEB_ADDRESS", "[::1]:80", "web_address", "[::1]:80"),
        ("WEB_ADDRESS", "", "web_address", ""),
        ("LOG_FORMAT", "text", "log_format", "text"),
        ("LOG_LEVEL", "debug", "log_level", "DEBUG"),
    ],
)
def test_the_environment_says_the_same(variable: str, value: str, field: str, expected: object) -> None:
    """Each flag's variable is the flag's name in capitals, and has the same form."""
    flag = "--" + variable.lower().replace("_", "-")
    assert getattr(settings(**{variable: value}), field) == expected
    assert getattr(settings(flag, value), field) == expected


def test_names_that_may_be_published() -> None:
    """``PUBLISH`` lists pairs of namespace and name, in any case; a star stands for any name."""
    result = settings(PUBLISH="shop=Ratings,platform=*")
    assert result.may_publish("shop", "RATINGS")
    assert not result.may_publish("shop", "stars")
    assert result.may_publish("platform", "stars")
    assert not settings().may_publish("shop", "ratings")


def test_the_lease_is_the_operators_own() -> None:
    """The Lease's name contains the operator's name; its default namespace is the pod's."""
    assert settings(OPERATOR_NAME="blue").lease_name == "blue-leader"
    assert settings(POD_NAMESPACE="ops").lease_namespace == "ops"
    assert settings(POD_NAMESPACE="ops", LEASE_NAMESPACE="other").lease_namespace == "other"
    with pytest.raises(ConfigurationError, match=r"'Blue'-leader must be .* set --lease-name"):
        settings(OPERATOR_NAME="Blue")
    with pytest.raises(ConfigurationError, match="--renew-deadline-seconds: 20"):
        settings(RENEW_DEADLINE_SECONDS="20")


def test_the_drain_follows_from_the_lease() -> None:
    """The drain covers callers' default caches and the time until another replica leads."""
    assert settings().needed_drain_seconds == 120
    longer = settings(LEASE_DURATION_SECONDS="30", RETRY_PERIOD_SECONDS="5")
    assert longer.needed_drain_seconds == 138


def test_what_callers_need_to_learn_follows_from_the_drain() -> None:
    """The time until callers know a new pod is the drain without the time of a change of leader."""
    assert settings().seconds_until_callers_know_pods == 102
    assert settings(LEASE_DURATION_SECONDS="30").seconds_until_callers_know_pods == 102
    assert settings(DRAIN_SECONDS="60").seconds_until_callers_know_pods == 42
    assert settings(DRAIN_SECONDS="1").seconds_until_callers_know_pods == 7
    assert settings(DRAIN_SECONDS="0").seconds_until_callers_know_pods == 102


def test_gates_are_served_where_the_settings_say_so() -> None:
    """A star in ``GATE_NAMESPACE`` stands for every watched namespace."""
    assert settings().watched_gate_namespaces == ()
    assert settings(GATE_NAMESPACE="shop,team").watched_gate_namespaces == ("shop", "team")
    assert settings(GATE_NAMESPACE="*").watched_gate_namespaces == (None,)
    assert settings(GATE_NAMESPACE="*", WATCH_NAMESPACE="shop").watched_gate_namespaces == ("shop",)


def test_gates_are_not_served_where_syncers_are_not_seen() -> None:
    """In an unwatched namespace every gate would be opened, since no syncer would seem to select its pods."""
    with pytest.raises(ConfigurationError, match="--gate-namespace names team, and --watch-namespace does"):
        settings(GATE_NAMESPACE="shop,team", WATCH_NAMESPACE="shop")


def test_kubeconfig_of_the_environment_is_the_clients() -> None:
    """The variable KUBECONFIG may list several files, and only the Kubernetes client reads it."""
    assert settings(KUBECONFIG="/a:/b").kubeconfig is None
    assert settings("--kubeconfig", "/a").kubeconfig == "/a"


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--resync-seconds", "soon"),
        ("--resync-seconds", "0"),
        ("--resync-seconds", "nan"),
        ("--resync-seconds", "1e9"),
        ("--drain-seconds", "-1"),
        ("--drain-seconds", "1.5"),
        ("--drain-seconds", "86401"),
        ("--advertise-from", "LoadBalancer"),
        ("--log-format", "xml"),
        ("--log-level", "LOUD"),
        ("--take-over-cluster", "yes"),
        ("--cross-namespace", "a"),
        ("--cross-namespace", "=b"),
    ],
)
def test_a_value_that_cannot_be_used(flag: str, value: str) -> None:
    """The one-line message names the flag and repeats the value."""
    with pytest.raises(ConfigurationError) as caught:
        settings(flag, value)
    assert str(caught.value).startswith(f"{flag}: ")
    assert value.upper() in str(caught.value).upper()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--cluster-name", "EKS", "--cluster-name: cluster name 'EKS'"),
        ("--eureka-ca-file", "/none.pem", "--eureka-ca-file: '/none.pem' is no file"),
        ("--eureka-url", "a:8761", "--eureka-url: the Eureka URL 'a:8761'"),
        ("--eureka-zone", "c", "EUREKA_URL: no Eureka URL belongs to the zone 'c'"),
    ],
)
def test_values_that_others_check(flag: str, value: str, words: str) -> None:
    """An unusable name, file or URL is reported with its flag, although another module checks it."""
    with pytest.raises(ConfigurationError) as caught:
        settings(flag, value)
    assert words in str(caught.value)


def test_no_eureka() -> None:
    """Without a URL the error names the flag and the variable that set one."""
    with pytest.raises(ConfigurationError, match="--eureka-url or EUREKA_URL"):
        load_settings({}, {})


def test_secrets_are_no_flags() -> None:
    """Every process of the machine can read flags: a flag names a file with a secret instead."""
    secret = {name for name in vars(parser().parse_args([])) if re.search("password|secret|token", name)}
    assert secret == {"eureka_password_file", "eureka_token_file"}
    with pytest.raises(SystemExit):
        settings("--eureka-password", SECRET)


def test_every_flag_names_its_variable() -> None:
    """The help text of each flag contains its environment variable."""
    helps = re.split(r"^  --", parser().format_help(), flags=re.MULTILINE)
    reported = {text.split(maxsplit=1)[0].replace("-", "_"): text for text in helps[1:]}
    assert reported.keys() == vars(parser().parse_args([])).keys()
    assert [name for name, text in reported.items() if name.upper() not in text] == []


def test_secrets_from_files(tmp_path: Path) -> None:
    """A secret's file wins over its variable, and its final line end is dropped."""
    path = tmp_path / "password"
    path.write_text(f"{SECRET}\n")
    result = settings(EUREKA_USER="ann", EUREKA_PASSWORD="x", EUREKA_PASSWORD_FILE=str(path))
    assert default(result).password == SECRET


def test_a_secrets_file_that_is_not_there(tmp_path: Path) -> None:
    """The message names the variable, the file and the reason."""
    with pytest.raises(
        ConfigurationError, match=r"EUREKA_PASSWORD_FILE: .*none cannot be read \(No such file"
    ):
        settings(EUREKA_PASSWORD_FILE=str(tmp_path / "none"))


def test_nothing_shows_a_secret() -> None:
    """The repr of settings contains no password."""
    result = settings(EUREKA_USER="ann", EUREKA_PASSWORD=SECRET)
    assert default(result).password == SECRET
    assert SECRET not in repr(result)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_secret_from_a_file_has_its_line_end(end: str) -> None:
    """The line end of a Secret that was made from a file belongs to neither password nor token."""
    assert default(settings(EUREKA_USER="ann", EUREKA_PASSWORD=f" {SECRET}{end}")).password == f" {SECRET}"
    assert default(settings(EUREKA_TOKEN=f"{SECRET}{end}")).token == SECRET


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
    """A syncer may select another namespace's Services only if a pair in ``CROSS_NAMESPACE`` allows it."""
    assert settings(CROSS_NAMESPACE=pairs).may_select(source, target) is expected


def test_watched_namespaces() -> None:
    """All namespaces are watched unless some are named."""
    assert settings().watches_namespace("any")
    assert settings(WATCH_NAMESPACE="a").watches_namespace("a")
    assert not settings(WATCH_NAMESPACE="a").watches_namespace("b")


def written(tmp_path: Path, text: str) -> str:
    """Write a configuration file, and return its path."""
    path = tmp_path / "eurekube.yaml"
    path.write_text(text)
    return str(path)


def test_a_file_says_the_same(tmp_path: Path) -> None:
    """A file's keys are the flags' names; its values may be YAML lists, numbers and booleans."""
    password = tmp_path / "password"
    password.write_text(f"{SECRET}\n")
    file = written(
        tmp_path,
        f"""
        eureka-url: [http://a/e, http://b/e]
        eureka-user: ann
        eureka-password-file: {password}
        eureka-mode: rest
        watch-namespace: [shop, billing]
        cross-namespace: a=b, c=*
        resync-seconds: 7
        take-over-cluster: true
        eureka-zone:
        """,
    )
    result = load_settings({"config": file}, {})
    assert default(result) == Connection(
        ("http://a/e", "http://b/e"), user="ann", password=SECRET, mode=BatchMode.REST, secret_file=password
    )
    assert result.watch_namespaces == ("shop", "billing")
    assert result.cross_namespace == {("a", "b"), ("c", "*")}
    assert (result.resync_seconds, result.take_over_cluster) == (7.0, True)
    assert result == load_settings({}, {"CONFIG": file})


def test_flag_then_environment_then_file_then_default(tmp_path: Path) -> None:
    """The order applies to each setting on its own, secrets included."""
    password = tmp_path / "password"
    password.write_text("from-file")
    file = written(
        tmp_path,
        f"""
        operator-name: file
        log-level: error
        connections:
          default: {{url: "http://file/e", user: file, password-file: {password}, mode: batch}}
        """,
    )
    flags = {"config": file, "operator_name": "flag"}
    result = load_settings(flags, {"OPERATOR_NAME": "variable", "EUREKA_USER": "variable"})
    assert (result.operator_name, result.log_level, result.resync_seconds) == ("flag", "ERROR", 15.0)
    assert default(result) == Connection(
        ("http://file/e",), user="variable", password="from-file", mode=BatchMode.BATCH, secret_file=password
    )
    plain = default(load_settings(flags, {"EUREKA_PASSWORD": "variable"}))
    assert (plain.password, plain.secret_file) == ("variable", None)
    other = tmp_path / "other"
    other.write_text("from-flag")
    near = {**flags, "eureka_password_file": str(other)}
    assert default(load_settings(near, {"EUREKA_PASSWORD": "variable"})).password == "from-flag"


def test_named_connections(tmp_path: Path) -> None:
    """Each further Eureka in the file has a name, URLs, credentials and a mode of its own."""
    token = tmp_path / "token"
    token.write_text("t0ken")
    file = written(
        tmp_path,
        f"""
        connections:
          eu-1: {{url: "http://eu/e", token-file: {token}, proxy: "http://proxy:1"}}
          us: {{url: ["z=http://us-1/e", "y=http://us-2/e"], zone: y}}
        """,
    )
    result = load_settings({"config": file}, {**URL, "EUREKA_USER": "ann", "EUREKA_PASSWORD": SECRET})
    assert result.connections == {
        "default": Connection(("http://a/eureka",), user="ann", password=SECRET),
        "eu-1": Connection(("http://eu/e",), token="t0ken", proxy="http://proxy:1", secret_file=token),
        "us": Connection(("http://us-2/e", "http://us-1/e")),
    }
    assert "t0ken" not in repr(result)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "watch-namespaces: a",
            "FILE: watch-namespaces: there is no such key; did you mean watch-namespace?",
        ),
        ("colour: red", "FILE: colour: there is no such key; there are eureka-url, "),
        ("config: x.yaml", "FILE: config: there is no such key"),
        ("log-level: [a]", "FILE: log-level: ['a'] must be text"),
        ("cluster-name: 012", "FILE: cluster-name: 10 must be text; put it in quotes"),
        ("eureka-zone: no", "FILE: eureka-zone: False must be text; put it in quotes"),
        ("resync-seconds: {a: 1}", "FILE: resync-seconds: {'a': 1} must be a number of seconds"),
        ("resync-seconds: true", "FILE: resync-seconds: True must be a number of seconds"),
        ("resync-seconds: soon", "FILE: resync-seconds: 'soon' must be a number of seconds between"),
        ("take-over-cluster: 1", "FILE: take-over-cluster: 1 must be true or false"),
        ("watch-namespace: [1]", "FILE: watch-namespace: 1 must be text; put it in quotes"),
        ("eureka-password: x", "FILE: eureka-password: a secret must not stand in this file"),
        ("targets: [a]", "FILE: targets: must be names with a kind each"),
        ("eureka-token-file: /none", "FILE: eureka-token-file: /none cannot be read (No such file"),
        ("[a]", "FILE: must be keys with values"),
        ("a: [", "FILE: this is no YAML in line 1"),
        ("connections: [a]", "FILE: connections: must be names with a url each"),
        ("connections: {A: {}}", "FILE: connections: 'A' must be a name of small letters"),
        ("connections: {1: {}}", "FILE: connections: 1 must be a name of small letters"),
        ("connections: {a: http://a/e}", "FILE: connections: a: must be keys such as url"),
        ("connections: {a: {user: x}}", "FILE: connections: a: there is no url"),
        ("connections: {a: {URL: x}}", "FILE: connections: a: URL: there is no such key"),
        ("connections: {a: {password: x}}", "FILE: connections: a: password: a secret must not stand in"),
        ("connections: {a: {url: b}}", "FILE: connections: a: url: the Eureka URL 'b' cannot be used"),
        (
            "connections: {a: {url: http://a/e, mode: x}}",
            "FILE: connections: a: mode: 'x' must be one of auto",
        ),
        (
            "{eureka-user: a, connections: {default: {user: b}}}",
            "FILE: connections: default: user: eureka-user says the same once more",
        ),
    ],
)
def test_what_is_wrong_in_a_file(tmp_path: Path, text: str, sentence: str) -> None:
    """A one-line message names the file, the key, the fault and a value that works."""
    file = written(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings({"config": file}, URL)
    assert str(caught.value).startswith(sentence.replace("FILE", file))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there() -> None:
    """The message names the flag or variable that gave the file."""
    with pytest.raises(ConfigurationError, match=r"^CONFIG: /none.yaml cannot be read \(No such file"):
        load_settings({}, {**URL, "CONFIG": "/none.yaml"})


def test_an_option_may_have_a_meaning_for_an_empty_text() -> None:
    """An empty value counts as not given, unless the option defines what it means."""
    for empty, expected in ((None, "unset"), ("off", "off")):
        option = Option("a", "X", TEXT_TYPE, "unset", "", value_if_empty=empty)
        assert option.read(flag_or_environment_texts([option], {"a": ""}, {}).get("a")) == expected
        assert option.read(flag_or_environment_texts([option], {}, {"A": " "}).get("a")) == expected


def test_actions_are_no_settings() -> None:
    """Actions such as ``--dry-run`` are flags only: a file cannot turn every start into a dry run."""
    result = argparse.ArgumentParser()
    add_flags(result)
    names = {name.replace("_", "-") for name in vars(result.parse_args([]))}
    actions = {"once", "dry-run", "without-lease", "check", "check-removal", "output"}
    assert names - {option.name for option in ALL_OPTIONS} == {"config", *actions}


def test_the_page_of_flags_is_what_the_options_say() -> None:
    """`make flags` writes docs/reference/flags.md from the table of options."""
    assert flags_page() == (ROOT / "docs" / "reference" / "flags.md").read_text()

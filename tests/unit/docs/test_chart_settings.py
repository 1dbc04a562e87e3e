"""The chart's rules for settings accept only values that the operator accepts."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.operator.options import (
    FILE_TYPE,
    NETWORKS_TYPE,
    Option,
    SourcedText,
    environment_variable_name,
)
from eurekube_provider.operator.settings import ALL_OPTIONS
from eurekube_provider.operator.triggers.targets import COMMON_TARGET_OPTIONS, OPTIONS_BY_TARGET_KIND
from scripts.chart_settings import make_chart_rules

RULES = make_chart_rules()
PATIENT = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Settings of Hypothesis for a busy machine."""

BY_VALUES = ("EUREKA_URL", "WEB_ADDRESS")
"""Variables that only chart values of their own set."""

SETTINGS = {environment_variable_name(one.name): one for one in ALL_OPTIONS if one.has_environment_variable}
KEYS = {
    f"{kind}: {one.name}": (one, rules[one.name])
    for kind, options, rules in (
        ("all", COMMON_TARGET_OPTIONS, RULES["target"]["common"]),
        *(
            (kind, options, RULES["target"]["kinds"][kind])
            for kind, options in OPTIONS_BY_TARGET_KIND.items()
        ),
    )
    for one in options
}
RULED = {
    **{name: (SETTINGS[name], rule) for name, rule in RULES["settings"].items() if "pattern" in rule},
    **{name: both for name, both in KEYS.items() if "pattern" in both[1]},
}


def refuses(option: Option, text: str) -> bool:
    """Return whether the operator refuses this text for an option."""
    try:
        option.read(SourcedText(text.strip(), "here"))
    except ConfigurationError:
        return True
    return False


@pytest.mark.parametrize("name", RULED)
def test_the_operator_takes_what_a_rule_lets_through(name: str) -> None:
    """The operator accepts every text that the chart's pattern for the setting matches."""
    option, rule = RULED[name]

    @PATIENT
    @given(st.from_regex(re.compile(rule["pattern"], re.ASCII), fullmatch=True))
    def takes(text: str) -> None:
        assume("\n" not in text)
        assert not refuses(option, text)

    takes()


@pytest.mark.parametrize(
    ("name", "option"), [*SETTINGS.items(), *((name, option) for name, (option, _) in KEYS.items())]
)
def test_each_setting_that_can_be_refused_has_a_rule(name: str, option: Option) -> None:
    """Each setting that the operator can refuse has a rule, except files and directories, which only the pod
    has, and networks, which a template checks.
    """
    only_the_pod = option.value_type is FILE_TYPE or option.name == "work-dir"
    can_be_refused = refuses(option, "\x7f") and not only_the_pod and option.value_type is not NETWORKS_TYPE
    assert (name in RULED) is (can_be_refused and name not in BY_VALUES)


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("LOG_LEVEL", ["DEBUG", "debug", "Warning"]),
        ("LOG_FORMAT", ["auto", "json", "TEXT"]),
        ("EUREKA_MODE", ["auto", "Batch"]),
        ("LEADER_ELECT", ["true", "False"]),
        ("RESYNC_SECONDS", ["0.1", ".5", "15", "2.50", "86400"]),
        ("DRAIN_SECONDS", ["0", "120", "86400"]),
        ("EUREKA_MAX_ANSWER_MIB", ["1", "128", "4096"]),
        ("RESERVE", ["payments=billing,shop=rating*", "*=*, a=b"]),
        ("CROSS_NAMESPACE", ["platform=*"]),
        ("ADVERTISE_FROM", ["Ingress", "Ingress,Gateway", "ingress, gateway"]),
        ("LEASE_NAMESPACE", ["eurekube-system"]),
        ("CLUSTER_NAME", ["prod", "5b0b3a5e", "x" * 40]),
        ("all: actions", ["up", "Refresh, Preview"]),
        ("pulumiStack: stack", ["infra/prod.eu"]),
        ("webhook: form", ["repository-dispatch"]),
        ("webhook: url", ["https://ci.example.com/hooks/shop", "http://[2001:db8::1]:8080/x"]),
    ],
)
def test_what_people_write_is_let_through(name: str, texts: list[str]) -> None:
    """The rules accept every form of a value that the documentation shows."""
    assert [text for text in texts if not re.fullmatch(RULED[name][1]["pattern"], text)] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("LOG_LEVEL", "LOUD"),
        ("RESYNC_SECONDS", "0"),
        ("RESYNC_SECONDS", "0.05"),
        ("RESYNC_SECONDS", "86400.5"),
        ("DRAIN_SECONDS", "1.5"),
        ("DRAIN_SECONDS", "86401"),
        ("EUREKA_MAX_ANSWER_MIB", "0"),
        ("EUREKA_MAX_ANSWER_MIB", "4097"),
        ("CLUSTER_NAME", "A B"),
        ("CLUSTER_NAME", "x" * 41),
        ("PUBLISH", "shop"),
        ("ADVERTISE_FROM", "NodePort"),
        ("all: kind", "Webhook"),
    ],
)
def test_what_the_operator_refuses_is_refused(name: str, text: str) -> None:
    """Operator and chart both refuse these values."""
    option, rule = RULED[name]
    assert refuses(option, text)
    assert not re.fullmatch(rule["pattern"], text)


def test_each_rule_says_what_the_setting_wants() -> None:
    """Each rule has the operator's sentence about valid values."""
    assert RULES["settings"]["LOG_LEVEL"]["must"] == "must be one of DEBUG, INFO, WARNING, ERROR"
    assert all(rule["must"].startswith("must ") for _, rule in RULED.values())


@PATIENT
@given(st.from_regex(re.compile(RULES["urls"]["service"], re.ASCII), fullmatch=True))
def test_each_service_url_that_is_let_through_can_be_used(text: str) -> None:
    """The operator accepts every service URL that the chart's pattern matches; a template checks brackets."""
    assume("[" not in text and "\n" not in text)
    assert len(Connection.parse(text).service_urls) == 1


@PATIENT
@given(st.from_regex(re.compile(RULES["urls"]["proxy"], re.ASCII), fullmatch=True))
def test_each_proxy_that_is_let_through_can_be_used(text: str) -> None:
    """The operator accepts every proxy, with or without a scheme, that the chart's pattern matches."""
    assume("[" not in text and "\n" not in text)
    known: dict[str, Any] = {"url": "http://eureka:8761/eureka", "proxy": text}
    assert Connection.from_settings(known.get).proxy == text

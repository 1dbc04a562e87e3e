"""The EurekaMirror's spec, the names of its Services, and the addresses it may use."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core import address_policy
from eurekube_provider.core.address_policy import AddressPolicy, JudgedAddress, parse_ip_address
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.mirror import Mirror, MirrorForm
from eurekube_provider.core.mirror_names import assign_service_names, mirrored_service_name
from eurekube_provider.core.networks import parse_networks


def mirror(**spec: Any) -> Mirror:
    """Return the mirror ``shop/legacy`` with this spec."""
    return Mirror.from_object({"metadata": {"namespace": "shop", "name": "legacy"}, "spec": spec})


def test_one_application_becomes_a_service_of_its_name() -> None:
    """By default the Service has a cluster IP, port 80 named http, and port 443 named https."""
    read = mirror(application="review")
    assert (read.application, read.form, read.eureka) == ("REVIEW", MirrorForm.CLUSTER_IP, "default")
    assert (read.port.name, read.port.number) == ("http", 80)
    assert (read.secure_port.name, read.secure_port.number, read.secure_port.app_protocol) == (
        "https",
        443,
        "https",
    )
    assert [read.selects_application(one) for one in ("REVIEW", "REVIEW2")] == [True, False]


def test_a_pattern_means_what_the_list_allows() -> None:
    """An application must match the pattern and the allow list, since anyone may register any name in
    Eureka.
    """
    read = mirror(pattern="shop-*", allow=["SHOP-REVIEW", "shop-r?"])
    assert [
        one for one in ("SHOP-REVIEW", "SHOP-R1", "SHOP-X", "REVIEW") if read.selects_application(one)
    ] == [
        "SHOP-REVIEW",
        "SHOP-R1",
    ]


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({}, "name one application, or a pattern"),
        ({"application": "a", "pattern": "b", "allow": ["b"]}, "name one application, or a pattern"),
        ({"pattern": "*"}, r"spec\.allow is missing"),
        ({"pattern": "*", "allow": ["a"], "attachTo": "rating"}, r"attachTo needs spec\.application"),
        ({"pattern": "*", "allow": ["a"], "serviceName": "x"}, r"must contain \{application\}"),
        ({"application": "a", "attachTo": "rating", "headless": True}, r"not with spec\.attachTo"),
        ({"application": "a", "securePort": 80}, "must differ"),
        ({"application": "a", "portName": "https"}, "must differ"),
        ({"application": "a", "port": "x"}, r"spec\.port is 'x'"),
        ({"application": "a", "allowedCIDRs": ["10.0.0.1/8"]}, "must be a network such as"),
        ({"application": "a/b"}, "without a slash"),
    ],
)
def test_what_cannot_be_meant_is_refused(spec: dict[str, Any], sentence: str) -> None:
    """The error names the mirror and the field, and says what is valid."""
    with pytest.raises(ConfigurationError, match=rf"EurekaMirror shop/legacy: .*{sentence}"):
        mirror(**spec)


@pytest.mark.parametrize(
    ("template", "application", "name"),
    [
        ("{application}", "ORDER_SERVICE.V2", "order-service-v2"),
        ("vm-{application}", "REVIEW", "vm-review"),
        ("{application}", "2ND", None),
        ("{application}", "_", None),
        ("{application}", "A" * 64, None),
        ("{application}", "A" * 63, "a" * 63),
        ("{application}", "-X-", "x"),
    ],
)
def test_names_are_dns_labels(template: str, application: str, name: str | None) -> None:
    """A Service's name is a label of RFC 1035, as Kubernetes requires, or None."""
    assert mirrored_service_name(template, application) == name


def test_of_two_applications_with_one_name_the_second_is_refused() -> None:
    """If one Service merged both applications, calls for the first would reach the second."""
    found = assign_service_names("{application}", ["A_B", "A-B", "C"], {})
    assert found.names == {"A-B": "a-b", "C": "c"}
    assert list(found.refusal_sentences) == ["A_B"]
    assert "A_B and A-B would both be the Service a-b" in found.refusal_sentences["A_B"]


def test_who_has_a_name_keeps_it() -> None:
    """An application that has the Service keeps the name; otherwise a newcomer in Eureka could take over
    its calls.
    """
    found = assign_service_names("{application}", ["A_B", "A-B"], {"a-b": "A_B"})
    assert (found.names, list(found.refusal_sentences)) == ({"A_B": "a-b"}, ["A-B"])


@given(st.sets(st.text(alphabet="AB-_.9", min_size=1, max_size=4)))
def test_no_two_applications_have_one_service(applications: set[str]) -> None:
    """Each application gets a Service name of its own, or is refused with a reason."""
    found = assign_service_names("{application}", applications, {})
    assert len(set(found.names.values())) == len(found.names)
    groups = (found.names, found.refusal_sentences, found.unnameable_sentences)
    assert sorted(application for group in groups for application in group) == sorted(applications)


POLICY = AddressPolicy(
    parse_networks(["0.0.0.0/0", "::/0"]), parse_networks(["10.96.0.0/12"]), frozenset({"192.0.2.9"})
)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("192.0.2.1", ""),
        ("2001:db8::1", ""),
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("0.0.0.0", "names no host"),
        ("224.0.0.1", "multicast"),
        ("10.96.0.10", "own Services or pods"),
        ("192.0.2.9", "own Services or pods"),
        ("::ffff:10.96.0.1", "form of an IPv6"),
    ],
)
def test_the_clusters_own_addresses_are_refused_whatever_is_allowed(address: str, why: str) -> None:
    """Anybody may register an address in Eureka, and must not direct the cluster's calls to its own
    Services.
    """
    parsed = parse_ip_address(address)
    assert parsed is not None
    said = POLICY.refusal_clause(parsed)
    assert (why in said) if why else said == ""


def test_nothing_is_allowed_by_itself() -> None:
    """An address must be in ``--mirror-cidrs``, and in the mirror's ``spec.allowedCIDRs`` if it has any."""
    address = ipaddress.ip_address("192.0.2.1")
    assert "--mirror-cidrs" in AddressPolicy(()).refusal_clause(address)
    policy = AddressPolicy(parse_networks(["192.0.2.0/24"]))
    assert policy.refusal_clause(address) == ""
    assert policy.refusal_clause(address, parse_networks(["192.0.2.0/31"])) == ""
    assert "spec.allowedCIDRs" in policy.refusal_clause(address, parse_networks(["192.0.2.2/31"]))
    assert "spec.allowedCIDRs" in policy.refusal_clause(address, parse_networks(["2001:db8::/32"]))


def test_a_judgement_is_kept_and_is_that_of_its_networks() -> None:
    """A cached judgement holds for one address text and one set of networks only."""
    policy = AddressPolicy(
        parse_networks(["192.0.2.0/24", "2001:db8::/32"]), cluster_addresses=frozenset({"192.0.2.9"})
    )
    narrow = parse_networks(["192.0.2.0/31"])
    for _ in range(2):
        assert policy.judge_address("192.0.2.1") == JudgedAddress("192.0.2.1", "IPv4", "")
        assert policy.judge_address("[2001:DB8::1]") == JudgedAddress("2001:db8::1", "IPv6", "")
        assert policy.judge_address("vm-1.example.com") is None
        for text, networks, why in (("192.0.2.9", (), "own"), ("192.0.2.2", narrow, "spec.allowedCIDRs")):
            found = policy.judge_address(text, networks)
            assert found is not None
            assert why in found.refusal_clause
        assert policy.judge_address("192.0.2.2") == JudgedAddress("192.0.2.2", "IPv4", "")
    assert policy == AddressPolicy(policy.allowed_networks, cluster_addresses=policy.cluster_addresses)


def test_no_more_judgements_are_kept_than_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of judgements is bounded, since addresses come and go."""
    monkeypatch.setattr(address_policy, "MAX_CACHED_JUDGEMENTS", 2)
    judged: list[str] = []
    parse = address_policy.parse_ip_address

    def noting(text: str) -> address_policy.IpAddress | None:
        judged.append(text)
        return parse(text)

    monkeypatch.setattr(address_policy, "parse_ip_address", noting)
    policy = AddressPolicy(parse_networks(["192.0.2.0/24"]))
    for number in (1, 2, 1, 3, 1):
        policy.judge_address(f"192.0.2.{number}")
    assert [text[-1] for text in judged] == ["1", "2", "3", "1"]


def test_addresses_may_be_in_brackets_and_names_are_none() -> None:
    """An IPv6 address in brackets is parsed, a host name yields None."""
    assert str(parse_ip_address("[2001:db8::1]")) == "2001:db8::1"
    assert parse_ip_address("vm-1.example.com") is None

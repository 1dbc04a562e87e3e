"""Names that later versions and other clusters read back; the tests pin their exact form."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core import identity
from eurekube_provider.core.errors import ConfigurationError, InvalidInstance
from eurekube_provider.core.identity import (
    Cluster,
    ClusterOwner,
    StackOwner,
    check_cluster_name,
    check_metadata_key,
    cluster_part_of_id,
    default_cluster_name,
    id_without_cluster,
    label_to_metadata_key,
    parse_owner,
    pod_and_namespace_of_id,
    pod_instance_id,
    service_part_of_id,
)
from tests.unit.strategies import names


def test_metadata_keys_are_frozen() -> None:
    """Registrations by older versions have exactly these keys."""
    assert identity.OWNER_KEY == "eurekube.owner"
    assert identity.RENEWER_KEY == "eurekube.renewer"
    assert identity.CLUSTER_UID_KEY == "eurekube.cluster-uid"
    assert identity.RESERVED_METADATA_PREFIX == "eurekube."
    assert identity.LEAVING_KEY == "eurekube.leaving"
    assert identity.ENFORCED_KEY == "eurekube.enforced"
    assert identity.INCARNATION_KEY == "eurekube.incarnation"
    assert identity.NODE_KEY == "eurekube.node"
    assert identity.SELF_RENEWER_VALUE == "self"


def test_owners_are_frozen() -> None:
    """An owner in an instance's metadata has exactly this form."""
    assert str(ClusterOwner("eks", "shop", "rating")) == "cluster/eks/shop/rating"
    assert str(StackOwner("acme", "shop", "prod", "billing")) == "stack/acme/shop/prod/billing"


def test_instance_ids_are_frozen() -> None:
    """Pods and Services have ids of this form, with the application in lower case."""
    assert pod_instance_id("rating-1", "shop", "eks", "RATING", 8080) == "rating-1.shop.eks:rating:8080"
    assert pod_instance_id("10.0.0.1", "shop", "eks", "rating", 80) == "10.0.0.1.shop.eks:rating:80"
    whole, at_node = (
        pod_instance_id(service_part_of_id("rating", node), "shop", "eks", "Rating", 80)
        for node in ("", "n1.dc")
    )
    assert whole == "rating.svc.shop.eks:rating:80"
    assert at_node == "rating.svc.n1.dc.shop.eks:rating:80"
    assert pod_and_namespace_of_id(at_node) == ("rating.svc.n1.dc", "shop")


def test_default_cluster_name_is_frozen() -> None:
    """The default name of a cluster is the first eight characters of its UID."""
    assert default_cluster_name("0b2c1d3e-4f5a-6789-abcd-ef0123456789") == "0b2c1d3e"


@pytest.mark.parametrize("name", ["eks", "eks-1", "0b2c1d3e", "a" * 40])
def test_cluster_names_that_fit(name: str) -> None:
    """A DNS label of at most 40 characters is a cluster name."""
    assert check_cluster_name(name) == name


@pytest.mark.parametrize("name", ["", "EKS", "a/b", "a.b", "-a", "a-", "a" * 41, "a b", "a\n"])
def test_cluster_names_that_do_not_fit(name: str) -> None:
    """Another name is refused, and the message repeats it."""
    with pytest.raises(ConfigurationError, match=re.escape(repr(name))):
        check_cluster_name(name)


@given(names, names, names)
def test_cluster_owner_is_read_back(cluster: str, namespace: str, syncer: str) -> None:
    """A parsed owner equals the one that was written."""
    owner = ClusterOwner(cluster, namespace, syncer)
    assert parse_owner(str(owner)) == owner


@given(names, names, names, st.lists(names, min_size=1, max_size=3))
def test_stack_owner_is_read_back(organization: str, project: str, stack: str, parts: list[str]) -> None:
    """A stack's owner is parsed back, also if its resource's name contains slashes."""
    owner = StackOwner(organization, project, stack, "/".join(parts))
    assert parse_owner(str(owner)) == owner


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "somebody",
        "cluster/eks/shop",
        "cluster/eks/shop/",
        "cluster/a/b/c/d",
        "stack/a/b/c",
        "stack//b/c/d",
    ],
)
def test_other_owners_are_none_of_ours(text: str | None) -> None:
    """A text of another form is parsed as no owner."""
    assert parse_owner(text) is None


@given(st.text())
def test_any_text_may_stand_as_an_owner(text: str) -> None:
    """Parsing never raises, and a parsed owner is written as the same text."""
    owner = parse_owner(text)
    assert owner is None or str(owner) == text


@pytest.mark.parametrize(
    ("label", "key"),
    [
        ("app", "app"),
        ("app.kubernetes.io/part-of", "app.kubernetes.io.part-of"),
        ("example.com/a_b", "example.com.a-b"),
        ("7up", "x-7up"),
        ("-x", "x--x"),
        (".x", "x-.x"),
        ("a b", "a-b"),
        ("größe", "gr--e"),
        ("", "x-"),
    ],
)
def test_label_keys_are_frozen(label: str, key: str) -> None:
    """A label's key becomes this metadata key."""
    assert label_to_metadata_key(label) == key


@given(st.text())
def test_label_key_is_an_xml_name(label: str) -> None:
    """Any label's key becomes an XML name, which is a valid metadata key and maps to itself."""
    key = label_to_metadata_key(label)
    assert ElementTree.fromstring(f"<{key}/>").tag == key  # noqa: S314 - our own
    assert check_metadata_key(key) == key
    assert label_to_metadata_key(key) == key


@pytest.mark.parametrize("key", ["a/b", "", "1a", "a b", "a\n", "-a", "a_b"])
def test_metadata_keys_that_would_not_arrive(key: str) -> None:
    """A metadata key that is no XML name is refused, and the error suggests a valid one."""
    with pytest.raises(InvalidInstance, match=re.escape(repr(label_to_metadata_key(key)))):
        check_metadata_key(key)


def test_an_id_is_read_whatever_the_cluster_was_called() -> None:
    """An instance id yields pod and namespace, and the part that is the same under any cluster name."""
    for name in ("eks", "0b2c1d3e", "east"):
        id_ = pod_instance_id("rating-1.x", "shop", name, "RATING", 8080)
        assert pod_and_namespace_of_id(id_) == ("rating-1.x", "shop")
        assert id_without_cluster(id_) == "rating-1.x.shop:rating:8080"
        assert cluster_part_of_id("RATING", name) in id_
        assert cluster_part_of_id("RATING", "lab") not in id_
    assert pod_and_namespace_of_id(pod_instance_id("2001:db8::7", "shop", "eks", "rating", 80)) == (
        "2001:db8::7",
        "shop",
    )
    assert pod_and_namespace_of_id("vm:rating:80") == ("", "")
    assert cluster_part_of_id("orders.eks", "eks") not in "a.shop.lab:orders.eks:80"


def test_a_cluster_knows_its_syncers_under_other_names() -> None:
    """An owner under another cluster name belongs to this cluster if the instance's metadata have its UID."""
    cluster = Cluster("east", "uid-1")
    assert cluster.has_syncer_under_another_name("cluster/lab/shop/rating", "uid-1")
    assert not cluster.has_syncer_under_another_name("cluster/east/shop/rating", "uid-1")
    assert not cluster.has_syncer_under_another_name("cluster/lab/shop/rating", "uid-2")
    assert not cluster.has_syncer_under_another_name("cluster/lab/shop/rating", None)
    assert not cluster.has_syncer_under_another_name("stack/o/p/s/n", "uid-1")
    assert not Cluster("east", "").has_syncer_under_another_name("cluster/lab/shop/rating", "")

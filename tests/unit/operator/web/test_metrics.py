"""The operator's metrics: names, values, labels that disappear, and the cost of a scrape."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from eurekube_provider.core.condition_types import Reason
from eurekube_provider.core.durations import BUCKET_BOUNDS_SECONDS
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.plan import Plan
from eurekube_provider.core.problem import Problem
from eurekube_provider.operator.web.metrics import METRIC_DEFINITIONS, MetricsExporter
from eurekube_provider.operator.web.overview import PageRequest, build_status_document
from eurekube_provider.operator.web.running_operator import RunningOperator
from eurekube_provider.runtime.histogram import Histogram
from tests.unit.operator.parts import URL, PlayedOperator, saying

DOCS = (Path(__file__).parents[4] / "docs" / "reference" / "web.md").read_text()
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(parts: RunningOperator | None) -> Samples:
    """Return all samples by name and labels."""
    body, _ = MetricsExporter(parts).render_scrape("")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def of(samples: Samples, syncer: str) -> dict[str, float]:
    """Return the samples whose only label is this syncer."""
    return {name: value for (name, labels), value in samples.items() if labels == (("syncer", syncer),)}


def test_counts_of_a_syncer_are_those_of_its_last_reconcile() -> None:
    """The counts are desired, registered, refused, drifted and braked, labelled with the syncer."""
    played = PlayedOperator()
    played.synced(played.syncer("rating"), 3)
    played.conflict(played.syncer("order"))
    played.braked(played.syncer("billing"), 2, 10.0)
    samples = scraped(played.parts)
    rating = of(samples, "shop/rating")
    assert time.time() - rating.pop("eurekube_last_success_timestamp_seconds") < 60
    assert rating == {
        "eurekube_desired_instances": 3,
        "eurekube_registered_instances": 3,
        "eurekube_refused_instances": 0,
        "eurekube_drifted_instances": 0,
        "eurekube_braked": 0,
    }
    order, billing = of(samples, "shop/order"), of(samples, "shop/billing")
    assert (order["eurekube_refused_instances"], order["eurekube_drifted_instances"]) == (1, 0)
    assert (billing["eurekube_drifted_instances"], billing["eurekube_braked"]) == (2, 1)
    assert "eurekube_last_success_timestamp_seconds" not in order
    results = {
        dict(labels)["syncer"]: dict(labels)["result"]
        for name, labels in samples
        if name == "eurekube_reconcile_total"
    }
    assert results == {"shop/rating": "synced", "shop/order": "problem", "shop/billing": "problem"}


@pytest.mark.parametrize(
    ("reason", "differences"),
    [(Reason.EUREKA_UNREACHABLE, Plan()), (Reason.EUREKA_DENIED, Plan()), (Reason.KUBERNETES_ERROR, None)],
)
def test_drift_that_was_not_looked_for_is_not_zero(reason: Reason, differences: Plan | None) -> None:
    """A syncer that could not be compared with Eureka has no counts of drifted and of refused instances."""
    played = PlayedOperator()
    played.synced(key := played.syncer("rating"), 3)
    failure = Problem(reason, "no answer")
    report = saying(False, failure, failure, problems={reason: failure})
    played.controller.history.record_reconcile(key, report, differences)
    assert of(scraped(played.parts), "shop/rating").keys() >= {"eurekube_registered_instances"}
    assert not of(scraped(played.parts), "shop/rating").keys() & {
        "eurekube_drifted_instances",
        "eurekube_refused_instances",
    }


def test_a_kind_that_cannot_be_read_any_more_is_told() -> None:
    """The metric of a watch is 1 while the kind is denied, and 0 again once it was listed."""
    played = PlayedOperator()
    (syncers,) = played.sources.syncers.reflectors
    name, labels = "eurekube_watch_failing", (("resource", "syncers"),)
    assert scraped(played.parts)[name, labels] == 0
    syncers.failure = KubernetesError("the Kubernetes API answered 403", status_code=403)
    samples = scraped(played.parts)
    assert (samples[name, labels], samples[name, (("resource", "slices"),)]) == (1, 0)
    syncers.replace_from_list([{"items": [], "metadata": {"resourceVersion": "1"}}])
    assert scraped(played.parts)[name, labels] == 0


def test_failed_reconciles_are_errors() -> None:
    """A failed first reconcile counts as an error, too."""
    played = PlayedOperator()
    key = played.syncer("rating")
    played.controller.history.count_reconcile_result(key, 1.0, failed=True)
    assert played.controller.history.result_counts() == {(key, "error"): 1}


def test_labels_of_a_deleted_syncer_disappear() -> None:
    """No sample names a deleted syncer, also if its last reconcile ends after its deletion."""
    played = PlayedOperator()
    kept, gone, late = (played.syncer(name) for name in ("kept", "gone", "late"))
    for key in (kept, gone, late):
        played.synced(key, 1)
    played.removed(gone)
    played.controller.history.forget(gone)
    played.removed(late)
    played.controller.history.record_reconcile(late, saying(True, Problem("Synced", "")))
    syncers = {dict(labels).get("syncer") for _, labels in scraped(played.parts)}
    assert syncers == {None, "shop/kept"}


def test_requests_renewals_and_servers() -> None:
    """The samples contain the Eureka client's counts of requests, renewals and servers."""
    played = PlayedOperator()
    (peer,) = played.registry.peers.peers
    peer.traffic.note_request_ended("GET", "200", 0.004)
    peer.traffic.note_request_ended("PUT", "none", 2.0)
    peer.traffic.note_usability("away")
    samples = scraped(played.leads(False))
    assert samples["eurekube_eureka_requests_total", (("code", "200"), ("method", "GET"))] == 1
    assert samples["eurekube_eureka_requests_total", (("code", "none"), ("method", "PUT"))] == 1
    assert samples["eurekube_peer_up", (("url", URL),)] == 0
    assert samples["eurekube_eureka_request_duration_seconds_count", ()] == 2
    assert samples["eurekube_eureka_request_duration_seconds_bucket", (("le", "0.005"),)] == 1
    assert samples["eurekube_eureka_request_duration_seconds_sum", ()] == 2.004
    assert samples["eurekube_heartbeats_total", (("result", "accepted"),)] == 0
    assert samples["eurekube_leader", ()] == 0
    assert scraped(played.parts)["eurekube_leader", ()] == 1


def test_a_registry_that_was_never_read_counts_as_read_at_the_start() -> None:
    """An operator that is started while Eureka is away has a sample too, so that the alert on old readings
    fires.
    """
    played = PlayedOperator()
    name = ("eurekube_registry_read_timestamp_seconds", (("eureka", "default"),))
    assert scraped(replace(played.parts, started_at=1000.0))[name] == 1000.0
    played.registry.reachability.note_read_and_check_first()
    assert time.time() - scraped(played.parts)[name] < 60


def test_watch_restarts_by_kind_and_reason() -> None:
    """The label ``resource`` names a kind that the operator watches."""
    played = PlayedOperator()
    played.sources.slices.reflectors[0].restarts["expired"] += 2
    samples = scraped(played.parts)
    assert samples["eurekube_watch_restarts_total", (("reason", "expired"), ("resource", "slices"))] == 2


def test_a_boundary_counts_as_below() -> None:
    """A value that equals a bucket's bound is in that bucket, as Prometheus' ``le`` requires."""
    histogram = Histogram()
    histogram.observe(BUCKET_BOUNDS_SECONDS[0])
    histogram.observe(BUCKET_BOUNDS_SECONDS[-1] + 1)
    counts = histogram.snapshot().counts
    assert (counts[0], counts[-1], sum(counts)) == (1, 1, 2)


def test_before_there_are_parts() -> None:
    """A scrape during the start yields the version, blind renewals and the process's own metrics."""
    names = {name for name, _ in scraped(None)}
    own = {name for name in names if name.startswith("eurekube_")}
    assert own == {"eurekube_build_info", "eurekube_blind_renewals"}
    assert {"process_resident_memory_bytes", "python_info"} <= names


def test_openmetrics_for_those_who_ask() -> None:
    """The Accept header selects the format."""
    played = PlayedOperator()
    body, content_type = MetricsExporter(played.parts).render_scrape(
        "application/openmetrics-text; version=1.0.0"
    )
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_names_follow_the_conventions() -> None:
    """Metrics use base units, ``_total`` on counters only, and no label with a value for each instance."""
    for metric in METRIC_DEFINITIONS.values():
        assert metric.name.startswith("eurekube_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert not re.search(r"_(ms|milliseconds|minutes|bytes_total)$", metric.name)
        assert not {"instance", "instance_id", "pod"} & set(metric.labels)
        assert all(re.search(rf"\b{label}\b", metric.help) for label in metric.labels)
        assert "series" in metric.help or "No labels." in metric.help


def test_every_metric_is_documented_and_no_other() -> None:
    """docs/reference/web.md lists exactly the exported metrics, with type and labels."""
    rows = re.findall(r"^\| `(eurekube_\w+)` \| (\w+) \| ([^|]*) \|", DOCS, re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert documented == {
        metric.name: (str(metric.kind), metric.labels) for metric in METRIC_DEFINITIONS.values()
    }


def test_every_key_of_the_document_is_documented() -> None:
    """docs/reference/web.md lists exactly the keys of ``/status.json``, by object."""
    rows: dict[str, set[str]] = {}
    for where, keys in re.findall(r"^\| `([\w.\[\]]+)` \| ((?:`\w+`(?:, )?)+) \|", DOCS, re.MULTILINE):
        rows[where] = set(re.findall(r"`(\w+)`", keys))
    played = PlayedOperator()
    played.conflict(played.syncer("rating"))
    played.refresh("rating")
    stacks = Instance("A", "b", "h", "10.0.0.1", Port(1), metadata={"eurekube.owner": "stack/o/p/s/n"})
    played.registry.renewals.add(stacks, just_registered=True)
    played.slice("rating", "10.0.0.1")
    played.registry.table.store_written_and_return_previous(replace(stacks, application="RATING"))
    played.mirror("review")
    found = keys_of(build_status_document(played.parts), "document") | keys_of(
        build_status_document(played.parts, PageRequest(application="rating")), "document"
    )
    assert rows == {where: set(keys) for where, keys in found.items()}


def keys_of(document: dict[str, Any], where: str) -> dict[str, Iterable[str]]:
    """Return the keys of a document and of each object in it, by the object's path."""
    found: dict[str, Iterable[str]] = {where: document.keys()}
    before = "" if where == "document" else f"{where}."
    for key, value in document.items():
        if isinstance(value, dict):
            found |= keys_of(value, f"{before}{key}")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            found |= keys_of(value[0], f"{before}{key}[]")
    return found


def test_a_scrape_is_cheap_with_many() -> None:
    """The cost of a scrape of 100 syncers does not grow with their 10,000 instances."""
    played = PlayedOperator()
    for number in range(100):
        played.synced(played.syncer(f"app-{number}"), 100)
    metrics = MetricsExporter(played.parts)
    metrics.render_scrape("")
    best = min(_seconds(lambda: metrics.render_scrape("")) for _ in range(5))
    assert best < 0.25  # about 0.01 s on an idle machine


def _seconds(call: object) -> float:
    started = time.thread_time()
    call()  # type: ignore[operator]
    return time.thread_time() - started


def test_the_example_rules_name_metrics_that_exist() -> None:
    """Each example alert uses exported metrics and labels, so that no typo silences it."""
    path = Path(__file__).parents[4] / "examples" / "monitoring" / "rules.yaml"
    (group,) = yaml.safe_load(path.read_text())["spec"]["groups"]
    assert len(group["rules"]) >= 5
    for rule in group["rules"]:
        used = set(re.findall(r"eurekube_\w+", rule["expr"]))
        assert used <= set(METRIC_DEFINITIONS), rule["alert"]
        labels = {label for name in used for label in METRIC_DEFINITIONS[name].labels}
        assert set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) <= labels, rule["alert"]


def test_the_dashboard_names_metrics_and_labels_that_exist() -> None:
    """The dashboard uses exported metrics and labels, histograms by their buckets, and Prometheus' label
    ``namespace``.
    """
    path = Path(__file__).parents[4] / "examples" / "monitoring" / "dashboard.json"
    document = json.loads(path.read_text())
    exported = {
        f"{name}_bucket" if metric.kind == "histogram" else name: {*metric.labels, "namespace"}
        for name, metric in METRIC_DEFINITIONS.items()
    }
    used = set()
    for panel in document["panels"]:
        for target in panel["targets"]:
            names = set(re.findall(r"eurekube_\w+", target["expr"]))
            assert names
            assert names <= set(exported), panel["title"]
            labels = {"le"}.union(*(exported[name] for name in names))
            grouped = re.findall(r"by \(([^)]*)\)", target["expr"])
            matched = re.findall(r"(\w+)=~?\"", target["expr"])
            shown = re.findall(r"{{(\w+)}}", target["legendFormat"])
            said = {word.strip() for text in grouped for word in text.split(",")} | {*matched, *shown}
            assert said <= labels, panel["title"]
            used |= names
    assert "eurekube_leader" in used
    (table,) = [panel for panel in document["panels"] if panel["type"] == "table"]
    assert table["title"] == "Syncers"
    assert all("by (syncer)" in target["expr"] for target in table["targets"])

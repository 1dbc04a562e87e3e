"""The metrics of ``/metrics``: the operator's own counters in Prometheus' format.

This module counts nothing. A scrape copies the counters that the parts keep, so that it costs them nothing
and a deleted syncer's labels are gone with it. Labels are few on purpose: syncers, servers, methods and
codes, never instances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from eurekube_provider.core.derived_syncer import is_namespace_syncer
from eurekube_provider.core.durations import BUCKET_BOUNDS_SECONDS, Distribution
from eurekube_provider.core.objects import key_of
from eurekube_provider.core.registry import Figures
from eurekube_provider.operator.blind_renewals import RenewalsWithoutKubernetes
from eurekube_provider.operator.web.running_operator import RunningOperator
from eurekube_provider.version import __version__

MetricKind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]
"""Names of a metric's labels, or a sample's values of those labels in the same order."""

Samples = Mapping[Any, float]
"""Values of one metric, by the values of its :data:`Labels`."""

MetricFamily = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_FAMILY_CLASS_BY_KIND: Mapping[str, type[MetricFamily]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """The definition of one metric.

    :param name: as it is scraped, ``_total`` included.
    :param help: one sentence, and how many series there can be.
    """

    name: str
    kind: MetricKind
    help: str
    labels: Labels


_HELP_TEXTS: Mapping[tuple[MetricKind, Labels], Mapping[str, str]] = {
    ("counter", ("syncer", "result")): {
        "eurekube_reconcile_total": "Reconciles of a syncer, by result: synced, problem (its conditions say"
        " which) or error (tried again). Labels syncer (namespace/name) and result: at most 3 series a "
        "syncer.",
    },
    ("histogram", ()): {
        "eurekube_reconcile_duration_seconds": "How long reconciles took, with Eureka's answers. No labels.",
        "eurekube_eureka_request_duration_seconds": "How long requests to Eureka took, answered or not. No"
        " labels.",
    },
    ("gauge", ("syncer",)): {
        "eurekube_desired_instances": "Instances that a syncer wanted at its last reconcile. Label syncer: 1"
        " series a syncer.",
        "eurekube_registered_instances": "Instances of a syncer that are in Eureka, as far as known. Label"
        " syncer: 1 series a syncer.",
        "eurekube_refused_instances": "Instances that were left alone: they belong to somebody else, or"
        " registered themselves; absent while Eureka cannot be read. Label syncer: at most 1 series each.",
        "eurekube_drifted_instances": "Instances that still differed from Eureka after a syncer's last"
        " reconcile, without the refused ones; absent while Eureka cannot be read. Label syncer: at most 1 "
        "series each.",
        "eurekube_braked": "1 while a syncer's removals are held back. Label syncer: 1 series a syncer.",
        "eurekube_last_success_timestamp_seconds": "Unix time of a syncer's last reconcile after which"
        " nothing differed; a syncer that needs none is not reconciled. Label syncer: at most 1 series a "
        "syncer.",
    },
    ("gauge", ()): {
        "eurekube_queue_depth": "Syncers that wait for a worker. No labels.",
        "eurekube_blind_renewals": "Instances that are renewed by what Eureka shows alone, since this process"
        " could not read its cluster yet; 0 once it has. No labels.",
        "eurekube_unserved_syncers": "Syncers in namespaces that this operator does not watch and that nobody"
        " seems to serve; only from the leader. No labels.",
        "eurekube_stuck_loops": "Loops of the operator that do not go on; `/healthz` names them. No labels.",
        "eurekube_leader": "1 if this replica may write: it leads, or there is no election. No labels.",
    },
    ("counter", ()): {
        "eurekube_lease_handovers_total": "Times that this replica handed the Lease over to one that reaches"
        " Eureka, since it was cut off from it. No labels.",
    },
    ("counter", ("method", "code")): {
        "eurekube_eureka_requests_total": "Requests to Eureka, by method and status code (none: no answer)."
        " Labels method and code: a few dozen series.",
    },
    ("counter", ("result",)): {
        "eurekube_heartbeats_total": "Renewals by result: accepted, missing (the server did not hold the"
        " instance) or failed (tried again); in batches, on each server. Label result: 3 series.",
    },
    ("gauge", ("eureka",)): {
        "eurekube_renewals_last_minute": "Renewals accepted within the last minute by one server, in the"
        " mean of all. Label eureka (the connection's name): 1 series a Eureka.",
        "eurekube_renewals_expected": "Renewals a minute that a server expects of what is renewed here."
        " Label eureka: 1 series a Eureka.",
        "eurekube_renewals_late_seconds": "For how long the renewal is due that has waited longest: above 25"
        " instances may lapse. Label eureka: 1 series a Eureka.",
        "eurekube_renewals_refused": "Instances that Eureka refused to renew when it was asked last. Label"
        " eureka: 1 series a Eureka.",
        "eurekube_registry_share": "The part of the registry that is renewed here, 0 to 1: above 0.15 Eureka"
        " goes into self-preservation when this operator stops. Label eureka: 1 series a Eureka.",
        "eurekube_registry_read_timestamp_seconds": "Unix time of the last complete reading of the registry;"
        " before the first one, of the operator's start."
        " Label eureka: 1 series a Eureka.",
    },
    ("gauge", ("url",)): {
        "eurekube_peer_up": "1 if a Eureka server answered the last request, 0 if not, or with 5xx, 401 or"
        " 403. Label url: 1 series a server.",
    },
    ("gauge", ("resource",)): {
        "eurekube_watch_failing": "1 while objects of a kind cannot be read, for want of a right or of an"
        " answer: the last copy is kept, and changes are not seen. Label resource: at most 4 series.",
    },
    ("counter", ("resource", "reason")): {
        "eurekube_watch_restarts_total": "Watches of the Kubernetes API that began again, by reason: ended"
        " (by the server, as asked), expired or failed. Labels resource and reason: at most 12 series.",
    },
    ("counter", ("refresh", "outcome")): {
        "eurekube_refresh_runs_total": "Runs of a StackRefresh's target, by outcome: Changed, Unchanged,"
        " Succeeded, Failed, Locked or Pending. Labels refresh (namespace/name) and outcome: at most 6 "
        "series a StackRefresh.",
    },
    ("gauge", ("refresh",)): {
        "eurekube_refresh_last_run_seconds": "How long the last run took. Label refresh: at most 1 series a"
        " StackRefresh.",
        "eurekube_refresh_last_success_timestamp_seconds": "Unix time at which a run ended well last, as far"
        " as this process knows. Label refresh: at most 1 series a StackRefresh.",
        "eurekube_refresh_failures": "Runs that failed in a row; only from the leader. Label refresh: at"
        " most 1 series a StackRefresh.",
        "eurekube_refresh_synced": "1 if the last run began after the last change of the addresses; only"
        " from the leader. Label refresh: at most 1 series a StackRefresh.",
    },
    ("gauge", ("mirror",)): {
        "eurekube_mirror_services": "Services that show an application for a EurekaMirror; only from the"
        " leader, as all of a mirror. Label mirror (namespace/name): 1 series a mirror.",
        "eurekube_mirror_endpoints": "Endpoints that a mirror shows. Label mirror: 1 series a mirror.",
        "eurekube_mirror_ready_endpoints": "Those that are called. Label mirror: 1 series a mirror.",
        "eurekube_mirror_held_endpoints": "Those that are called although Eureka lists them no more, since no"
        " server says that they left. Label mirror: 1 series a mirror.",
        "eurekube_mirror_synced": "1 if the cluster shows what Eureka holds. Label mirror: 1 series each.",
        "eurekube_mirror_read_timestamp_seconds": "Unix time of the reading of Eureka that a mirror was last"
        " reconciled with; absent while there was none. Label mirror: at most 1 series a mirror.",
    },
    ("counter", ("resource", "verb")): {
        "eurekube_mirror_writes_total": "Writes of Services and EndpointSlices for mirrors. Labels resource"
        " and verb: at most 6 series.",
    },
    ("gauge", ("version",)): {
        "eurekube_build_info": "Always 1. Label version: 1 series.",
    },
}
"""Help text of each metric, with its number of series; by kind and labels, then by name."""

METRIC_DEFINITIONS = {
    name: MetricDefinition(name, kind, text, labels)
    for (kind, labels), texts in _HELP_TEXTS.items()
    for name, text in texts.items()
}
"""Eurekube's metrics, by name; those with ``process_`` and ``python_`` are the client library's."""


class MetricsExporter(Collector):
    """All scraped metrics, read from the operator at each scrape; before it runs there are only a few."""

    def __init__(
        self, operator: RunningOperator | None = None, blind: RenewalsWithoutKubernetes | None = None
    ) -> None:
        self._operator = operator
        self._blind = blind
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values, so that nothing is read before the first scrape."""
        return [_new_family(metric) for metric in METRIC_DEFINITIONS.values()]

    def collect(self) -> Iterable[Metric]:
        yield _metric_with_samples("eurekube_build_info", {(__version__,): 1})
        operator = self._operator
        blind_count = self._blind.renewed_instance_count if self._blind else 0
        yield _metric_with_samples("eurekube_blind_renewals", {(): blind_count})
        if operator is None:
            return
        figures = {name: registry.figures() for name, registry in operator.registries.items()}
        unserved, stuck = operator.unserved, sum(bool(one.problem_sentence) for one in operator.liveness())
        known: dict[str, Samples] = {
            **_syncer_samples(operator),
            **_registry_samples(figures, operator.started_at),
            **_stack_refresh_samples(operator),
            **_mirror_samples(operator),
            "eurekube_leader": {(): operator.is_leader() is not False},
            "eurekube_lease_handovers_total": {(): operator.hand_over_count()},
            **({"eurekube_unserved_syncers": {(): unserved.unserved_count}} if unserved else {}),
            "eurekube_queue_depth": {(): operator.queue.depth},
            "eurekube_stuck_loops": {(): stuck},
            "eurekube_watch_failing": {
                (kind,): fails for kind, fails in operator.sources.watches_failing.items()
            },
            "eurekube_watch_restarts_total": operator.watch_restart_counts(),
        }
        for name, samples in known.items():
            yield _metric_with_samples(name, samples)
        yield _histogram_metric(
            "eurekube_reconcile_duration_seconds", operator.controller.history.durations.snapshot()
        )
        durations = (server.durations for one in figures.values() for server in one.servers)
        yield _histogram_metric("eurekube_eureka_request_duration_seconds", sum(durations, Distribution()))

    def render_scrape(self, accept: str) -> tuple[bytes, str]:
        """Return the text of one scrape in the format of the ``Accept`` header, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


def _syncer_samples(operator: RunningOperator) -> dict[str, Samples]:
    history = operator.controller.history
    # A namespace's has nothing itself: its sum would count twice.
    those = (one for one in operator.sources.syncers.objects() if not is_namespace_syncer(one))
    last_reconciles = {key: history.last.get(key) for key in map(key_of, those)}
    seen = {key: last for key, last in last_reconciles.items() if last is not None}
    compared = {key: last for key, last in seen.items() if last.differing_count is not None}
    return {
        "eurekube_reconcile_total": {
            ("/".join(key), result): count
            for (key, result), count in history.result_counts().items()
            if key in last_reconciles
        },
        "eurekube_desired_instances": _samples(seen, lambda last: last.report.desired),
        "eurekube_registered_instances": {
            ("/".join(key),): len(operator.instances_of(key)) for key in last_reconciles
        },
        "eurekube_refused_instances": _samples(compared, lambda last: last.report.refused),
        "eurekube_drifted_instances": _samples(
            compared, lambda last: max(0, (last.differing_count or 0) - last.report.refused)
        ),
        "eurekube_braked": _samples(seen, lambda last: last.removals_held_since is not None),
        "eurekube_last_success_timestamp_seconds": _samples(seen, lambda last: last.succeeded_at),
    }


def _stack_refresh_samples(operator: RunningOperator) -> dict[str, Samples]:
    if operator.triggers is None:
        return {}
    history, states = operator.triggers.run_statistics(), operator.triggers.states()
    return {
        "eurekube_refresh_runs_total": {
            ("/".join(key), str(outcome)): count
            for key, one in history.items()
            for outcome, count in one.outcomes.items()
        },
        "eurekube_refresh_last_run_seconds": _samples(history, lambda one: one.last_run_seconds),
        "eurekube_refresh_last_success_timestamp_seconds": _samples(history, lambda one: one.succeeded_at),
        "eurekube_refresh_failures": _samples(states, lambda one: one.consecutive_failures),
        "eurekube_refresh_synced": _samples(states, lambda one: one.is_synced),
    }


def _mirror_samples(operator: RunningOperator) -> dict[str, Samples]:
    if operator.mirrors is None:
        return {}
    reports = operator.mirrors.reports()
    return {
        "eurekube_mirror_services": _samples(reports, lambda one: len(one.services)),
        "eurekube_mirror_endpoints": _samples(reports, lambda one: one.endpoints),
        "eurekube_mirror_ready_endpoints": _samples(reports, lambda one: one.ready),
        "eurekube_mirror_held_endpoints": _samples(reports, lambda one: one.held),
        "eurekube_mirror_synced": _samples(reports, lambda one: one.synced_condition[0]),
        "eurekube_mirror_read_timestamp_seconds": _samples(reports, lambda one: one.read_at),
        "eurekube_mirror_writes_total": operator.mirrors.write_counts,
    }


def _registry_samples(registries: Mapping[str, Figures], started_at: float) -> dict[str, Samples]:
    """Return the samples of registries.

    :param started_at: counts as the reading of a registry that was never read, so that an alert on old
        readings fires for it as well.
    """
    counts = registries.values()
    requests: Counter[Labels] = Counter()
    up: dict[Labels, float] = {}
    for server in (server for one in counts for server in one.servers):
        requests.update(server.request_counts)
        if server.is_up is not None:  # two connections may name one server: it is up if both find it so
            up[server.url,] = min(up.get((server.url,), 1.0), float(server.is_up))
    by_eureka = {(name,): one for name, one in registries.items()}
    return {
        "eurekube_eureka_requests_total": requests,
        "eurekube_heartbeats_total": {
            ("accepted",): sum(one.accepted_renewals for one in counts),
            ("missing",): sum(one.missing_renewals for one in counts),
            ("failed",): sum(one.failed_renewals for one in counts),
        },
        "eurekube_renewals_last_minute": _samples(by_eureka, lambda one: one.renewals_last_minute),
        "eurekube_renewals_expected": _samples(by_eureka, lambda one: one.expected_renewals_per_minute),
        "eurekube_renewals_late_seconds": _samples(by_eureka, lambda one: one.overdue_seconds),
        "eurekube_renewals_refused": _samples(by_eureka, lambda one: one.refused_instances),
        "eurekube_registry_share": _samples(by_eureka, lambda one: one.renewed_share),
        "eurekube_registry_read_timestamp_seconds": _samples(
            by_eureka, lambda one: started_at if one.read_at is None else one.read_at
        ),
        "eurekube_peer_up": up,
    }


T = TypeVar("T")


def _samples(values: Mapping[Any, T], get_figure: Callable[[T], float | None]) -> Samples:
    """Return a sample for each object or Eureka, labelled with its name; none where the figure is None."""
    figures = {key: get_figure(one) for key, one in values.items()}
    return {("/".join(key),): figure for key, figure in figures.items() if figure is not None}


def _new_family(metric: MetricDefinition) -> MetricFamily:
    return _FAMILY_CLASS_BY_KIND[metric.kind](metric.name, metric.help, labels=metric.labels)


def _metric_with_samples(name: str, samples: Samples) -> Metric:
    family = _new_family(METRIC_DEFINITIONS[name])
    assert not isinstance(family, HistogramMetricFamily)  # noqa: S101 - those have _histogram_metric
    for labels, value in samples.items():
        family.add_metric(labels, float(value))
    return family


def _histogram_metric(name: str, distribution: Distribution) -> Metric:
    family = HistogramMetricFamily(name, METRIC_DEFINITIONS[name].help)
    buckets, below = [], 0.0
    for bound, count in zip((*map(str, BUCKET_BOUNDS_SECONDS), "+Inf"), distribution.counts, strict=True):
        below += count
        buckets.append((bound, below))
    family.add_metric((), buckets, distribution.total_seconds)
    return family

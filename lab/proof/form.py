"""The size of the proof: full, with every default of the field, or short, with caches tuned down."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from eurekube_provider.core.drain_time import Drain
from lab.proof import FormName
from lab.proof.subjects import Scenario, Strategy, Subject


@dataclass(frozen=True, slots=True)
class Form:
    """The size and the settings of a proof.

    :ivar eureka_settings: Spring properties of the servers, ``client_settings`` of the callers,
        ``operator_settings`` variables of the operators; all empty in the full form.
    :ivar drain: the caches between instance and callers with these settings.
    :ivar is_shared: one Eureka for all, and one process for all callers; else the Eureka that is disturbed is
        a second one, and the LoadBalancer's callers have a process and Feign's another.
    """

    subjects: tuple[Subject, ...]
    drain: Drain
    replicas: int
    calls_per_second: int
    warm_up_seconds: float
    settle_seconds: float
    is_shared: bool
    eureka_settings: Mapping[str, str] = field(default_factory=dict)
    client_settings: Mapping[str, str] = field(default_factory=dict)
    operator_settings: Mapping[str, str] = field(default_factory=dict)


_EVERYWHERE = (Strategy.NONE, Strategy.SLEEP, Strategy.OURS)
_EVENTS = tuple(scenario for scenario in Scenario if scenario is not Scenario.ALONE)
_CONTROL = Subject(Scenario.ALONE, Strategy.NONE)
_BY_STATUS = tuple(
    Subject(scenario, Strategy.OUT_OF_SERVICE) for scenario in (Scenario.ROLLED, Scenario.PEER)
)
"""Subjects whose syncer reports OUT_OF_SERVICE in the same way as a removal; a restarted server may have
forgotten that status.
"""

FORMS: Mapping[FormName, Form] = {
    "full": Form(
        subjects=(
            *(Subject(scenario, strategy) for scenario in _EVENTS for strategy in _EVERYWHERE),
            *_BY_STATUS,
            _CONTROL,
        ),
        drain=Drain(),
        replicas=4,
        calls_per_second=25,
        warm_up_seconds=10.0,
        settle_seconds=10.0,
        is_shared=False,
    ),
    "short": Form(
        subjects=(
            Subject(Scenario.ROLLED, Strategy.NONE),
            *(Subject(scenario, Strategy.OURS) for scenario in _EVENTS),
            *_BY_STATUS,
            _CONTROL,
        ),
        # The margin is large for caches that are small: it is there for machines that are busy.
        drain=Drain(
            server_cache_seconds=1,
            client_fetch_seconds=2,
            load_balancer_cache_seconds=1,
            replication_seconds=1,
            take_over_seconds=5,
            margin_seconds=8,
        ),
        replicas=2,
        calls_per_second=20,
        warm_up_seconds=3.0,
        settle_seconds=2.0,
        is_shared=True,
        eureka_settings={"eureka.server.response-cache-update-interval-ms": "1000"},
        client_settings={
            "eureka.client.registry-fetch-interval-seconds": "2",
            "spring.cloud.loadbalancer.cache.ttl": "1s",
        },
        operator_settings={
            "LEASE_DURATION_SECONDS": "4",
            "RENEW_DEADLINE_SECONDS": "3",
            "RETRY_PERIOD_SECONDS": "1",
        },
    ),
}

"""The settings of the proof: full, with the defaults that users have, or short, with caches tuned down."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from eurekube_provider.core.drain_time import Drain
from lab.proof import ProofVariant
from lab.proof.subjects import Scenario, Strategy, Subject


@dataclass(frozen=True, slots=True)
class ProofSettings:
    """The size and the settings of a proof.

    :ivar eureka_settings: Spring properties of the servers, ``client_settings`` of the callers,
        ``operator_settings`` variables of the operators; all empty in the full form.
    :ivar drain: the caches between instance and callers with these settings.
    :ivar shares_eureka: one Eureka for all, and one process for all callers; else the Eureka that is
        disturbed is a second one, and the LoadBalancer's callers have a process and Feign's another.
    """

    subjects: tuple[Subject, ...]
    drain: Drain
    replicas: int
    calls_per_second: int
    warm_up_seconds: float
    settle_seconds: float
    shares_eureka: bool
    eureka_settings: Mapping[str, str] = field(default_factory=dict)
    client_settings: Mapping[str, str] = field(default_factory=dict)
    operator_settings: Mapping[str, str] = field(default_factory=dict)


_COMPARED_STRATEGIES = (Strategy.NONE, Strategy.SLEEP, Strategy.EUREKUBE_DRAIN)
_DISTURBED_SCENARIOS = tuple(scenario for scenario in Scenario if scenario is not Scenario.UNDISTURBED)
_CONTROL_SUBJECT = Subject(Scenario.UNDISTURBED, Strategy.NONE)
_OUT_OF_SERVICE_SUBJECTS = tuple(
    Subject(scenario, Strategy.OUT_OF_SERVICE) for scenario in (Scenario.ROLLED, Scenario.PEER)
)
"""Subjects whose syncer reports OUT_OF_SERVICE in the same way as a removal; a restarted server may have
forgotten that status.
"""

PROOF_SETTINGS: Mapping[ProofVariant, ProofSettings] = {
    "full": ProofSettings(
        subjects=(
            *(
                Subject(scenario, strategy)
                for scenario in _DISTURBED_SCENARIOS
                for strategy in _COMPARED_STRATEGIES
            ),
            *_OUT_OF_SERVICE_SUBJECTS,
            _CONTROL_SUBJECT,
        ),
        drain=Drain(),
        replicas=4,
        calls_per_second=25,
        warm_up_seconds=10.0,
        settle_seconds=10.0,
        shares_eureka=False,
    ),
    "short": ProofSettings(
        subjects=(
            Subject(Scenario.ROLLED, Strategy.NONE),
            *(Subject(scenario, Strategy.EUREKUBE_DRAIN) for scenario in _DISTURBED_SCENARIOS),
            *_OUT_OF_SERVICE_SUBJECTS,
            _CONTROL_SUBJECT,
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
        shares_eureka=True,
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

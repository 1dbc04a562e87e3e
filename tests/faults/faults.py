"""The list of all kinds of faults."""

from __future__ import annotations

from tests.faults.api_faults import (
    ApiAway,
    ApiRestarted,
    EtcdPaused,
    WatchesCut,
    WatchesExpired,
    WatchesSilent,
)
from tests.faults.eureka_faults import (
    NamedEurekaAway,
    PeerKilled,
    PeerOutOfReach,
    PeerPaused,
    PeerSlow,
    PeerSplit,
)
from tests.faults.fault import Fault
from tests.faults.operator_faults import (
    AllOperatorsKilled,
    ClockStepped,
    LeaderCutOff,
    LeaderStopped,
    OperatorKilled,
    OperatorPaused,
)
from tests.faults.workload_faults import (
    GatedRolledOut,
    MassDelete,
    NamespaceDeleted,
    NamespaceDeletedUnseen,
    NodeLost,
    PodsUnready,
    RolledOut,
    ServiceDeleted,
    ServiceLeaves,
    SyncerEdited,
    WestLost,
)

KINDS: tuple[type[Fault], ...] = (
    OperatorKilled,
    OperatorPaused,
    LeaderStopped,
    LeaderCutOff,
    AllOperatorsKilled,
    ClockStepped,
    ApiRestarted,
    ApiAway,
    EtcdPaused,
    WatchesCut,
    WatchesSilent,
    WatchesExpired,
    PeerKilled,
    PeerPaused,
    PeerSplit,
    PeerSlow,
    PeerOutOfReach,
    NamedEurekaAway,
    PodsUnready,
    RolledOut,
    GatedRolledOut,
    MassDelete,
    NodeLost,
    ServiceDeleted,
    ServiceLeaves,
    NamespaceDeleted,
    NamespaceDeletedUnseen,
    SyncerEdited,
    WestLost,
)

"""The parts of the product that are explored (sides), by name, and the replay of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from eurekube_provider.eureka.connection import BatchMode
from tests.explore import campaign, explorer, generated, others, programs, stateless, world
from tests.explore.engine import Engine, NativeEngine, RefreshingEngine
from tests.explore.operator import (
    acts,
    keepalive,
    mirror_campaign,
    mirror_edits,
    reconciler,
    stepwise,
    syncers,
)
from tests.explore.operator import campaign as of_clusters
from tests.explore.operator import edits as cluster_edits
from tests.explore.operator import world as cluster_world
from tests.explore.operator.explorer import Setup
from tests.explore.part import Part

NAMES = ("stacks", "clusters", "reconciler", "mirrors", "keepalive")
STACKS, CLUSTERS, RECONCILER, MIRRORS, KEEPALIVE = NAMES

Sequences = Callable[[int, float, Part], Iterator[str]]
"""A function that tries sequences, given a seed, the end time and the part; it yields the violations of
each, or nothing.
"""


def sides(edit: str | None = None) -> dict[str, Sequences]:
    """Return the sides of an exploration by name, with all edits or with the named one only."""
    stacks = tuple(one for one in campaign.ALL if edit in (None, one.name))
    clusters = tuple(one for one in cluster_edits.EDITS if edit in (None, one.name))
    found: dict[str, Sequences] = {}
    if stacks:
        found[STACKS] = lambda seed, end, part: campaign.sequences(seed, end, stacks, part)
    if clusters:
        found[CLUSTERS] = lambda seed, end, part: of_clusters.sequences(seed, end, clusters, part)
        found[RECONCILER] = lambda seed, end, part: reconciler.sequences(seed, end, clusters, part)
    mirrors = tuple(one for one in mirror_edits.MIRROR_EDITS if edit in (None, one.name))
    if mirrors:
        found[MIRRORS] = lambda seed, end, part: mirror_campaign.sequences(seed, end, mirrors, part)
    names = tuple(one for one in keepalive.NAMES if edit in (None, one))
    if names:
        found[KEEPALIVE] = lambda seed, end, part: keepalive.sequences(seed, end, names, part)
    return found


def replayed(sequence: str) -> str:
    """Run the sequence that a failure names; return its violations, or nothing."""
    side, _, call = sequence.partition(".")
    if side == CLUSTERS:
        names = {
            **{act.__name__: act for act in acts.ACTS},
            "tried": of_clusters.tried,
            "syncers": syncers.tried,
            "edit": cluster_edits.edit,
            "together": cluster_edits.together,
            "Setup": Setup,
            "Mode": BatchMode,
            "Fault": cluster_world.Fault,
        }
        with cluster_world.owned():
            return str(eval(call, names))  # noqa: S307 - written by the person who runs it
    if side == RECONCILER:
        happenings = {getattr(one, "__name__", ""): one for one in reconciler.HAPPENINGS}
        names = {
            **happenings,
            "tried": reconciler.tried,
            "edit": cluster_edits.edit,
            "Setup": Setup,
            "Mode": BatchMode,
            "Fault": cluster_world.Fault,
        }
        with stepwise.owned():
            return str(eval(call, names))  # noqa: S307 - as above
    if side == MIRRORS:
        names = {
            **{getattr(one, "__name__", ""): one for one in mirror_edits.ACTS},
            "tried": mirror_campaign.tried,
            "mirror_edit": mirror_edits.mirror_edit,
            "Fault": cluster_world.Fault,
        }
        with stepwise.owned():
            return str(eval(call, names))  # noqa: S307 - as above
    if side == KEEPALIVE:
        acts_beside = {getattr(act, "__name__", ""): act for act in keepalive.ACTS}
        with keepalive.kept():
            return str(eval(call, {**acts_beside, "tried": keepalive.tried, "Fault": cluster_world.Fault}))  # noqa: S307
    names = {
        "tried": explorer.tried,
        "generated": generated.tried,
        "edit": programs.edit,
        "Fault": world.Fault,
        "Act": others.Act,
        "Deed": others.Deed,
        "Engine": Engine,
        "NativeEngine": NativeEngine,
        "RefreshingEngine": RefreshingEngine,
        "Stateless": stateless.Stateless,
    }
    return str(eval(call, names))  # noqa: S307 - as above

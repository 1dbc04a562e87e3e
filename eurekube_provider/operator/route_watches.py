"""Watches of Ingresses, Gateways and HTTPRoutes, each only while a syncer takes its address from them.

They are watched wherever the operator watches Services: an Ingress of another namespace may have the same
host, and a Gateway mostly is in another namespace than the HTTPRoutes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from eurekube_provider.core.objects import Object, key_of
from eurekube_provider.core.routes import Routes
from eurekube_provider.core.syncer import Advertise, Syncer
from eurekube_provider.kube.access import GATEWAYS, HTTP_ROUTES, INGRESSES, ApiResource, KubeAccess
from eurekube_provider.kube.reflector import DENIAL_SETTLE_SECONDS, Reflector
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.watches import OnDemandWatches, WatchScope

ROUTE_KINDS: Mapping[Advertise, Mapping[str, ApiResource]] = {
    Advertise.INGRESS: {"ingresses": INGRESSES},
    Advertise.GATEWAY: {"gateways": GATEWAYS, "http_routes": HTTP_ROUTES},
}
"""The kinds of objects that each kind of address needs, by the field of :class:`Routes`."""

_KEPT_ROUTE_SPEC_FIELDS = ("rules", "tls", "listeners", "allowedListeners", "parentRefs", "hostnames")
"""Fields of the spec of an Ingress, a Gateway or an HTTPRoute that the mapping reads."""

CHANGE_BATCH_SECONDS = 1.0
"""Seconds for which changes of Ingresses and routes are gathered before the syncers are reconciled."""


class RouteWatches:
    """The watched Ingresses, Gateways and HTTPRoutes.

    :param namespaces: the namespaces to watch; empty for all.
    :param allowed: the kinds of addresses that the operator's configuration allows; for others nothing is
        watched.
    :param concerned: called with the key of each syncer whose objects have been read.
    :param concerned_later: called with the key of each syncer that an object's change may concern, and the
        longest delay, seconds.
    """

    def __init__(
        self,
        access: KubeAccess,
        namespaces: Iterable[str],
        allowed: Collection[Advertise],
        concerned: Callable[[SyncerKey], None],
        concerned_later: Callable[[SyncerKey, float], None],
    ) -> None:
        self._access = access
        self._namespaces = tuple(namespaces)
        self._concerned = concerned
        self._concerned_later = concerned_later
        self._watches = {
            advertise: {name: self._new_watch(resource) for name, resource in kinds.items()}
            for advertise, kinds in ROUTE_KINDS.items()
            if advertise in allowed
        }
        self.groups: dict[str, OnDemandWatches] = {
            ROUTE_KINDS[advertise][name].plural: watch
            for advertise, watches in self._watches.items()
            for name, watch in watches.items()
        }

    def watch_needed_kinds(self, key: SyncerKey, syncer: Syncer | None) -> None:
        """Watch the kinds that a syncer needs; None for a syncer that is gone."""
        asked = syncer.advertise if syncer is not None and syncer.needs_routes else None
        for advertise, watches in self._watches.items():
            for watch in watches.values():
                watch.set_needed_scopes(key, self._scopes if advertise is asked else set())

    def routes(self, syncer: Syncer) -> Routes | None:
        """Return the objects by which callers may reach a syncer's Services; None before they are read.

        Another namespace that this process may not read, such as one that was deleted, is left out.
        """
        namespace, watches = syncer.selector.namespace, self._watches.get(syncer.advertise, {})
        found = {}
        unread = set[WatchScope]()
        for name, watch in watches.items():
            reflectors = watch.reflectors
            if (
                not reflectors
                or not watch.is_synced_or_forbidden
                or watch.find_unsynced(namespace) is not None
            ):
                return None
            # The copy may be as old as the former leader's, or as the right to read.
            if not watch.is_usable_by_new_leader or watch.find_denied_after_list(namespace) is not None:
                return None
            unread |= {one.namespace for one in reflectors if not one.is_synced}
            found[name] = watch.objects()
        read = {one for one in self._namespaces if one not in unread} if self._namespaces else None
        return Routes(**found, read_namespaces=read) if found else None

    def failure_text(self, syncer: Syncer) -> str:
        """Return why the objects that a syncer needs have not been read; empty where no reason is known."""
        for name, watch in self._watches.get(syncer.advertise, {}).items():
            if (error := watch.failure) is None:
                continue
            kind = ROUTE_KINDS[syncer.advertise][name]
            if error.status_code == 404:
                return f"the cluster does not know the kind {kind.plural}.{kind.group}: install its CRD"
            return str(error)
        return ""

    @property
    def _scopes(self) -> set[WatchScope]:
        return set(self._namespaces) or {None}

    def _new_watch(self, resource: ApiResource) -> OnDemandWatches:
        def concern_users(seconds: float, *_: object) -> None:
            for user in watches.users_of(next(iter(self._scopes))):  # each user needs all of them
                self._concerned_later(user, seconds)

        changed, denied = (
            partial(concern_users, one) for one in (CHANGE_BATCH_SECONDS, DENIAL_SETTLE_SECONDS)
        )
        watches = OnDemandWatches(
            partial(Reflector, self._access, resource, trim_route, changed, on_denied=denied), self._concerned
        )
        return watches


def trim_route(item: Object, _before: Object | None = None) -> dict[str, Any]:
    """Return the part of an Ingress, a Gateway or an HTTPRoute that the mapping reads."""
    (namespace, name), spec, status = key_of(item), item.get("spec") or {}, item.get("status") or {}
    kept: dict[str, Any] = {key: status[key] for key in ("loadBalancer", "addresses") if key in status}
    for key, named in (("parents", "parentRef"), ("listeners", "name")):
        if key in status:
            kept[key] = [
                {named: one.get(named), "conditions": _conditions_without_times(one)}
                for one in status[key] or ()
            ]
    if "conditions" in status:
        kept["conditions"] = _conditions_without_times(status)
    metadata = {"namespace": namespace, "name": name, "generation": item["metadata"].get("generation", 0)}
    if ends := item["metadata"].get("deletionTimestamp"):
        metadata["deletionTimestamp"] = ends
    return {
        "metadata": metadata,
        "spec": {key: spec[key] for key in _KEPT_ROUTE_SPEC_FIELDS if key in spec},
        "status": kept,
    }


def _conditions_without_times(item: Object) -> list[dict[str, Any]]:
    """Return the conditions without times and messages, which change though nothing else does."""
    return [
        {key: one[key] for key in ("type", "status", "observedGeneration") if key in one}
        for one in item.get("conditions") or ()
    ]

"""A syncer's permission to use its names, its selector and its Eureka."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.condition_types import Reason, SyncerCondition
from eurekube_provider.core.identity import Cluster, ClusterOwner, owner_in_words, parse_owner
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import key_of
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.reservations import Reservations
from eurekube_provider.core.syncer import Syncer, connection_name
from eurekube_provider.core.wording import format_list
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import ClusterCache

_MOST_NAMED_OWNERS = 3
"""Most other owners that a message names; the others are counted."""


class Permissions:
    """Rules for a syncer's names, selectors and Eureka: by the configuration, and by a name's first user."""

    def __init__(
        self, settings: Settings, cluster: Cluster, registries: Registries, sources: ClusterCache
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._registries = registries
        self._sources = sources
        self._reservations = Reservations(settings.reserve)
        self._address_policy = AddressPolicy(
            settings.advertise_cidrs, settings.cluster_cidrs, allowed_networks_option="--advertise-cidrs"
        )

    def refusal(self, syncer: Syncer, previously_claimed_names: frozenset[str]) -> Problem | None:
        """Return the reason why a syncer may not register as its spec asks; None if it may.

        :param previously_claimed_names: names that the syncer has used before, and so may keep.
        :raises RegistryError: the connection's Eureka has not been read yet.
        """
        if (refusal := self._configuration_refusal(syncer)) is not None:
            return refusal
        if syncer.eureka not in self._registries:
            return Problem(
                Reason.UNKNOWN_EUREKA,
                f"spec.eureka is {syncer.eureka!r}, and the operator's configuration has no connection of"
                f" that name; there are {', '.join(sorted(self._registries))}",
            )
        self._registries.require_read(syncer.eureka)
        return self._name_conflict(syncer, previously_claimed_names)

    def _configuration_refusal(self, syncer: Syncer) -> Problem | None:
        target = syncer.selector.namespace
        if not self._settings.may_select(syncer.namespace, target):
            return Problem(
                Reason.NOT_ALLOWED,
                f"spec.selector.namespace is {target}, and syncers of {syncer.namespace} may"
                " not select Services there",
                "move the syncer, or allow it in the operator's"
                f" configuration with --cross-namespace {syncer.namespace}={target}",
            )
        if not self._settings.watches_namespace(target):
            return Problem(
                Reason.NOT_ALLOWED,
                f"spec.selector.namespace is {target}, which this operator does not watch",
                "add it to --watch-namespace",
            )
        if syncer.address and (why := self._address_refusal_phrase(syncer.address)):
            return Problem(
                Reason.NOT_ALLOWED,
                f"spec.address is {syncer.address!r}, which {why}",
                "take spec.advertise in its place; or allow it in the operator's configuration with"
                " --advertise-cidrs or --advertise-hosts",
            )
        if syncer.needs_routes and syncer.advertise not in self._settings.advertise_from:
            return Problem(
                Reason.NOT_ALLOWED,
                f"spec.advertise is {syncer.advertise}, and the operator's configuration takes no addresses "
                "from there",
                "take another spec.advertise, or allow it in the operator's configuration with"
                f" --advertise-from {syncer.advertise}",
            )
        for name in sorted(syncer.names):
            if self._reservations.lets_register(syncer.namespace, name) is False:
                return Problem(
                    Reason.NOT_ALLOWED,
                    f"it would be called {name!r}, which the operator's configuration reserves for other "
                    "namespaces",
                    f"take another name, or allow it with --reserve {syncer.namespace}={name}",
                )
        if self._settings.strict_names:
            for name in self._names_that_no_service_has(syncer):
                if not self._settings.may_publish(syncer.namespace, name):
                    return Problem(
                        Reason.NOT_ALLOWED,
                        f"it would be called {name!r}, which is not the name of its Services, and the"
                        " operator's configuration allows no other one (--strict-names)",
                        "leave the name out, or allow it in the operator's configuration with"
                        f" --publish {syncer.namespace}={name}",
                    )
        return None

    def _address_refusal_phrase(self, address: str) -> str:
        """Return the reason why a syncer may not set this ``spec.address``; empty if it may."""
        judged = self._address_policy.judge_address(address)
        if judged is not None:
            return judged.refusal_clause
        name = address.lower()
        allowed = map(str.lower, self._settings.advertise_hosts)
        if any(name.endswith(one) if one.startswith(".") else name == one for one in allowed):
            return ""
        return "is none of the hosts that the operator's configuration allows (--advertise-hosts)"

    def _names_that_no_service_has(self, syncer: Syncer) -> list[str]:
        """Return the syncer's names that none of its Services has, sorted; empty while it has no Service."""
        others = syncer.names - {syncer.selector.app.lower()}  # which every Service that it selects is called
        own = self._sources.service_names_and_apps(syncer.selector) if others else frozenset[str]()
        return sorted(others - own) if own else []

    def _name_conflict(self, syncer: Syncer, previously_claimed_names: frozenset[str]) -> Problem | None:
        """Return a conflict for a name that only another namespace of this cluster uses.

        A syncer that has had instances under a name keeps the name as long as it exists.
        """
        for name in sorted(syncer.names - previously_claimed_names):
            if self._reservations.lets_register(syncer.namespace, name):
                continue
            called = self._registries[syncer.eureka].owners(lookup_name=name)
            owners = [self._cluster.parse_syncer_of_this_cluster(owner) for owner in called]
            holders = {(owner.namespace, owner.syncer) for owner in owners if owner is not None}
            claimants = {
                key_of(item)
                for item in self._sources.syncers_claiming_name(name)
                if connection_name(item) == syncer.eureka
            }
            if any(namespace == syncer.namespace for namespace, _ in (*holders, *claimants)):
                continue
            if not holders and not claimants:
                continue
            theirs = min(holders or claimants)
            whose = "/".join(theirs)
            has = (
                f"and so are instances of {whose}, a syncer of another namespace: anyone who calls those "
                "would come here as well"
                if holders
                else f"and {whose}, a syncer of another namespace, keeps that name as long as it exists,"
                " though it has no instance now"
            )
            return Problem(
                SyncerCondition.CONFLICT,
                f"it would be called {name!r}, {has}",
                "take another name; or, if both shall be called, allow it in the operator's configuration"
                f" with --reserve {theirs[0]}={name},{syncer.namespace}={name}",
            )
        return None

    def unreserved_names_note(
        self, syncer: Syncer, unowned: Sequence[Instance], own_instance_ids: Container[str]
    ) -> Problem | None:
        """Return a note on names of the syncer that are not reserved for it and that others use as well.

        :param unowned: the instances of its application that no Eurekube registered.
        """
        reasons: dict[str, str] = {}
        others = frozenset(self._names_that_no_service_has(syncer))
        for name in sorted(syncer.names):
            owners = self._registries[syncer.eureka].owners(lookup_name=name)
            strangers = self._describe_other_users_of_name(syncer, name, owners, unowned, own_instance_ids)
            if not strangers and name not in others:
                continue  # as nearly all are
            if self._reservations.lets_register(syncer.namespace, name):
                continue
            if self._settings.may_publish(syncer.namespace, name):
                continue
            if strangers:
                reasons[name] = f"{strangers} under the name {name!r} as well: callers come to both"
            else:
                reasons[name] = f"{name!r} is not the name of its Services"
        if not reasons:
            return None
        pairs = ",".join(f"{syncer.namespace}={name}" for name in reasons)
        return Problem(
            SyncerCondition.NAME_NOT_RESERVED,
            f"{'; '.join(reasons.values())}; the operator's configuration gives the name to no namespace",
            f"if it is meant, say so in the operator's configuration with --reserve {pairs}; else take "
            "another name",
        )

    def _describe_other_users_of_name(
        self,
        syncer: Syncer,
        name: str,
        owners: Iterable[str],
        unowned: Sequence[Instance],
        own_instance_ids: Container[str],
    ) -> str:
        """Return a sentence on other owners of a name; syncers of equally named namespaces are no others."""
        found = set[str]()
        for owner in owners:
            parsed = parse_owner(owner)
            if isinstance(parsed, ClusterOwner) and parsed.namespace == syncer.namespace:
                continue
            if owner:
                found.add(printable(owner_in_words(owner)))
                continue
            named = [one for one in unowned if name in one.names]
            up = [one for one in named if one.status is Status.UP and one.instance_id not in own_instance_ids]
            if up:
                # One alone is named, so that the sentence stays the same while others come and go.
                first = min(one.instance_id for one in up)
                found.add(printable(f"what registered itself (e.g. {up[0].application} {first})"))
            elif not named and name != syncer.application.lower():
                found.add("what registered itself as another application")
        verb = "has" if len(found) == 1 else "have"
        return f"{format_list(sorted(found), _MOST_NAMED_OWNERS)} {verb} instances" if found else ""

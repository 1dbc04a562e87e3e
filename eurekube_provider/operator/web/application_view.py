"""One application on the status page: the owner of each endpoint and of each instance."""

from __future__ import annotations

from functools import partial
from typing import Any

from eurekube_provider.comparison.comparing import compare_without_kubernetes
from eurekube_provider.comparison.managers import Manager, ManagerKind, manager_of
from eurekube_provider.comparison.pairs import pair_endpoints_with_instances
from eurekube_provider.operator.web.running_operator import RunningOperator

MOST_ENDPOINT_INSTANCE_PAIRS = 40
"""Most pairs that are shown of one syncer, those that disagree first; the others are counted."""

MOST_SHOWN_INSTANCES = 40
"""Most instances that are listed of an owner that is no syncer of this cluster."""


def application_view(operator: RunningOperator, application: str) -> dict[str, Any]:
    """Return the endpoints and instances of each syncer of an application, and the instances of other owners.

    :param application: in any case.
    """
    name = application.upper()
    kept_by = partial(manager_of, cluster=operator.cluster.name)
    keys = sorted(operator.sources.syncers_of(name))
    known = {
        eureka: registry.known_instances(application=name) for eureka, registry in operator.registries.items()
    }
    kept = [(one, kept_by(one)) for instances in known.values() for one in instances]
    syncers = []
    for key in keys:
        manager = Manager(ManagerKind.SYNCER, "/".join(key))
        pairs = pair_endpoints_with_instances(
            operator.sources.slices_of_syncer(key),
            [one for one, whose in kept if whose == manager],
            {one.ip_address: (one, str(whose)) for one, whose in kept if whose != manager},
        )
        shown = [one.to_dict() for one in pairs[:MOST_ENDPOINT_INSTANCE_PAIRS]]
        syncers.append({"syncer": manager.name, "pairs": shown, "more": len(pairs) - len(shown)})
    own = {(eureka, Manager(ManagerKind.SYNCER, "/".join(key))) for eureka in known for key in keys}
    others = sorted(compare_without_kubernetes(known, kept_by, own), key=lambda one: one.sort_key)
    beside = [
        {
            "keeper": str(one.manager),
            "eureka": one.eureka_name,
            "up": one.eureka.up if one.eureka else None,
            "total": one.eureka.total if one.eureka else None,
            "instances": [
                {"instanceId": each.instance_id, "status": str(each.status), "address": each.ip_address}
                for each in known[one.eureka_name]
                if kept_by(each) == one.manager
            ][:MOST_SHOWN_INSTANCES],
        }
        for one in others
    ]
    return {"name": name, "syncers": syncers, "others": beside}

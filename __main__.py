"""The Pulumi program of Eurekube: the stack's configuration becomes an operator, syncers and registrations.

Pulumi.yaml declares the settings, and stacks/ has each stack's values. A missing or wrong setting ends the
program with one sentence.
"""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as kubernetes

from eurekube_provider import EurekaInstance, EurekaSyncer, EurekubeOperator
from eurekube_provider.resources.exports import export
from eurekube_provider.resources.labels import object_labels
from eurekube_provider.resources.new_namespace import make_new_namespace
from eurekube_provider.resources.program import leave_quietly_when_interrupted
from eurekube_provider.resources.stack_settings import StackSettings

leave_quietly_when_interrupted()
settings = StackSettings.load()

# Without a kubeconfig or a context of its own, the stack goes where kubectl would.
cluster: pulumi.ProviderResource | None = None
if settings.kubeconfig is not None or settings.context is not None:
    cluster = kubernetes.Provider(
        "kubernetes",
        kubeconfig=str(settings.kubeconfig) if settings.kubeconfig is not None else None,
        context=settings.context,
    )


def after(*resources: pulumi.Resource) -> pulumi.ResourceOptions:
    """Return options for a resource in this stack's cluster, made after ``resources`` and removed before
    them.
    """
    return pulumi.ResourceOptions(
        providers=[cluster] if cluster is not None else None, depends_on=list(resources)
    )


namespaces = [
    make_new_namespace(
        name,
        name,
        object_labels("namespace", name),
        pulumi.ResourceOptions(provider=cluster),
        asked_by="eurekube:namespaces",
        remedy="leave out of eurekube:namespaces what others made, which then stays on destroy",
    )
    for name in settings.namespaces
]

operator = EurekubeOperator("eurekube", settings.operator, opts=after(*namespaces))

# The operator deregisters what a syncer brought before the syncer goes, so that it must be there until then.
syncers = {name: EurekaSyncer(name, args, opts=after(operator)) for name, args in settings.syncers.items()}

# The operator must be there to renew them: after 90 seconds without a renewal they lapse.
registrations = {
    name: EurekaInstance(name, args, opts=pulumi.ResourceOptions(depends_on=[operator]))
    for name, args in settings.registrations.items()
}

export(
    {
        "eurekaUrls": list(settings.operator.eureka_urls),
        "operator": {"name": operator.operator_name, "namespace": operator.namespace},
        "syncers": {
            name: pulumi.Output.concat(item.namespace, "/", item.name) for name, item in syncers.items()
        },
        "registrations": {name: item.instance_id for name, item in registrations.items()},
    }
)

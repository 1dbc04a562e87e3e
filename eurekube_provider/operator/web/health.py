"""Whether the operator lives and is ready: what ``/healthz`` and ``/readyz`` answer.

Alive is a question to our own threads alone. Neither Eureka nor the Kubernetes API can make it no: a restart
would bring neither back, and would end the renewals that still get through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eurekube_provider.core.liveness import Liveness
from eurekube_provider.core.registry import Registry, Unread
from eurekube_provider.operator.sources import Sources


def stuck(loops: Iterable[Liveness]) -> list[str]:
    """A sentence for each loop that makes no progress; none while all is well."""
    return [loop.problem for loop in loops if loop.problem]


def not_ready(sources: Sources, registries: Mapping[str, Registry]) -> list[str]:
    """A sentence for each thing that was not read yet; none once the operator may act, or stand by."""
    sentences = []
    if not sources.is_settled:
        why = "; ".join(f"{kind}: {error}" for kind, error in sources.failures.items())
        sentences.append(f"the Kubernetes objects were not read completely yet{f' ({why})' if why else ''}")
    for name, registry in registries.items():
        condition = registry.condition()
        if isinstance(condition, Unread):
            why = f" ({condition.error})" if condition.error else ""
            sentences.append(f"the Eureka {name!r} was not read yet{why}")
    return sentences

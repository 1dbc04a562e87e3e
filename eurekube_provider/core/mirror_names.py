"""Names of mirrored Services: each application becomes one DNS label, and no two become the same.

Eureka allows characters in an application's name that a Service's name cannot have: ``A_B`` and ``A-B``
become one name. The second application is refused: merged, the calls for one would reach the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eurekube_provider.core.mirror import APPLICATION_PLACEHOLDER

MAX_SERVICE_NAME_LENGTH = 63
_DNS_LABEL_PATTERN = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_UNFIT_CHARACTER_PATTERN = re.compile(r"[^a-z0-9-]")


@dataclass(frozen=True, slots=True)
class AssignedNames:
    """The Services of applications, by name.

    :ivar names: the Service's name, by application.
    :ivar refusal_sentences: by application without a Service because another application has the name, why.
    :ivar unnameable_sentences: by application whose name cannot become a Service's name, why.
    """

    names: Mapping[str, str]
    refusal_sentences: Mapping[str, str]
    unnameable_sentences: Mapping[str, str]


def mirrored_service_name(template: str, application: str) -> str | None:
    """Return the name of an application's Service; None if the template gives no DNS-1035 label.

    >>> mirrored_service_name("{application}", "ORDER_SERVICE.V2")
    'order-service-v2'
    """
    written = template.replace(APPLICATION_PLACEHOLDER, application.lower())
    name = _UNFIT_CHARACTER_PATTERN.sub("-", written).strip("-")
    return name if len(name) <= MAX_SERVICE_NAME_LENGTH and _DNS_LABEL_PATTERN.match(name) else None


def assign_service_names(
    template: str, applications: Iterable[str], existing: Mapping[str, str]
) -> AssignedNames:
    """Return the name of each application's Service.

    :param existing: by name of an existing Service, the application that it shows, which keeps the name.
    """
    taken = dict(existing)
    names: dict[str, str] = {}
    refused: dict[str, str] = {}
    unnameable: dict[str, str] = {}
    for application in sorted(applications):
        name = mirrored_service_name(template, application)
        if name is None:
            unnameable[application] = (
                f"no name of a Service comes of {template!r} for {application}: it must begin with a letter"
                f" and have at most {MAX_SERVICE_NAME_LENGTH} letters, digits and dashes"
            )
            continue
        holder = taken.setdefault(name, application)
        if holder == application:
            names[application] = name
        else:
            refused[application] = (
                f"{application} and {holder} would both be the Service {name}: only {holder} is mirrored;"
                " mirror the other by a mirror of its own, with another spec.serviceName"
            )
    return AssignedNames(names, refused, unnameable)

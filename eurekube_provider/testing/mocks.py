"""Pulumi mocks with registrations, for tests of a program without a server and without a Pulumi CLI."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping, Sequence

from eurekube_provider.core.identity import DYNAMIC_APPLICATION_TYPE, DYNAMIC_INSTANCE_TYPE
from eurekube_provider.core.model import Status
from eurekube_provider.registrations.discovered import FoundInstance, to_found_instance
from eurekube_provider.registrations.instance_fields import properties_to_instance
from eurekube_provider.registrations.members import member_properties
from eurekube_provider.resources.mocked_registrations import MockedRegistrations
from eurekube_provider.testing.assertions import RegistrationAssertions


class EurekubeMocks(MockedRegistrations, RegistrationAssertions):
    """Mocks for ``pulumi.runtime.set_mocks`` that record the program's registrations, checked as in an
    update.

    Other resources get their inputs as outputs. For more, derive a class and extend ``new_resource`` and
    ``call``. Pulumi's mocks need a current event loop: the constructor makes one if there is none, as in
    every process on Python 3.14.
    """

    def __init__(self) -> None:
        super().__init__()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                asyncio.get_event_loop()
        except RuntimeError:
            asyncio.set_event_loop(asyncio.new_event_loop())

    def instances_by_place(self) -> Mapping[str, Sequence[FoundInstance]]:
        """Return the instances that the program would register.

        :raises AssertionError: an update would refuse one of them.
        """
        __tracebackhide__ = True
        if self.refused:
            raise AssertionError("\n".join(self.refused.values()))
        made = list(self.registrations[DYNAMIC_INSTANCE_TYPE].values())
        for application in self.registrations[DYNAMIC_APPLICATION_TYPE].values():
            made += member_properties(application).values()
        asked = (properties_to_instance(each, Status(each.get("status") or Status.UP), {}) for each in made)
        return {"the program": [to_found_instance(each) for each in asked]}

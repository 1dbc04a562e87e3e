"""Errors about servers that are no longer configured, and the setting that abandons them."""

from __future__ import annotations

import pytest

from eurekube_provider.core.errors import RegistryDenied, RegistryError, RegistryRejected, RegistryUnreachable
from eurekube_provider.registrations.servers import abandoned_message, with_server_hints

URL = "http://eureka:8761/eureka"


def test_forgotten_registrations_are_reported_as_text() -> None:
    """The message masks control characters in an instance's name, which anybody can choose."""
    assert abandoned_message("RATING a\x1b[2K\rsafe", [URL]).startswith("RATING a [2K safe at ")


@pytest.mark.parametrize(
    "error", [RegistryDenied("answered 401"), RegistryUnreachable("no connection to it")]
)
def test_a_removal_says_whose_configuration_it_goes_by(error: RegistryError) -> None:
    """A destroy or refresh uses the last update's configuration, as the error says, unless it runs the
    program.
    """
    with (
        pytest.raises(type(error), match="unless they are run with --run-program"),
        with_server_hints({"url": URL}.get, "default", [URL], is_leaving=True),
    ):
        raise error


def test_a_server_that_is_another_one_by_now_can_be_let_go_of() -> None:
    """If a server's answers are not Eureka's, the error names ``abandonedUrls``."""
    error = RegistryRejected("list the registry: answered 200 with something that is not JSON")
    with (
        pytest.raises(RegistryRejected, match=f"pulumi config set eurekube:abandonedUrls {URL}"),
        with_server_hints({"url": URL}.get, "default", [URL], is_leaving=True),
    ):
        raise error

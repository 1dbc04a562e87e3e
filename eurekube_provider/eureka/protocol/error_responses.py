"""What a server means by an answer that is no success, and what to do about it."""

from __future__ import annotations

from eurekube_provider.core.errors import RegistryDenied, RegistryError, RegistryRejected, RegistryUnreachable
from eurekube_provider.eureka.protocol.transport import EurekaResponse


def refusal(what: str, url: str, response: EurekaResponse) -> RegistryError:
    """The error that an answer to ``what`` was asked for is."""
    code = response.status_code
    if code == 401:
        return RegistryDenied(
            f"{what}: {url} answered 401, so that it wants other credentials:"
            " check eurekube:user and eurekube:password (EUREKA_USER, EUREKA_PASSWORD)",
            url=url,
            status_code=code,
        )
    if code == 403:
        return RegistryDenied(
            f"{what}: {url} answered 403: Spring Security's CSRF protection must be off for /eureka/**,"
            " the user must be allowed to write, and a server that has just started answers so as long as"
            " it has nothing to show",
            url=url,
            status_code=code,
        )
    body = " ".join(response.text.split())[:200]
    said = f"{url} answered {code}{f' ({body})' if body else ''}"
    if code >= 500:
        return RegistryUnreachable(f"{what}: {said}", url=url, status_code=code)
    hint = ""
    if code in (301, 302, 303, 307, 308):
        location = response.headers.get("Location", "").rpartition("@")[2]
        hint = f"; it redirects to {location}: use that address"
    elif code == 404:
        hint = "; the service URL usually ends with /eureka (or /eureka/v2)"
    return RegistryRejected(f"{what}: {said}{hint}", url=url, status_code=code)

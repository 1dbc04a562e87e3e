"""The errors for a server's unsuccessful answers, with remedies."""

from __future__ import annotations

from collections.abc import Callable

from eurekube_provider.core.errors import RegistryDenied, RegistryError, RegistryRejected, RegistryUnreachable
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.protocol.transport import EurekaResponse

_PROXY_STATUS_CODES = (403, 502, 503, 504)
"""Status codes that a proxy itself answers when it does not let a request through."""

_REDIRECT_STATUS_CODES = (301, 302, 303, 307, 308)

_UNUSABLE_STATUS_CODES = (*_REDIRECT_STATUS_CODES, 404, 405, 408, 425, 429)
"""Status codes of gateways and of other servers than Eureka, which says nothing of the instance by them."""


def error_for_response(
    what: str,
    url: str,
    response: EurekaResponse,
    proxy: str = "",
    hide: Callable[[str], str] = str,
    *,
    judges_usability: bool = True,
) -> RegistryError:
    """Return the error for an unsuccessful answer.

    :param what: the attempted operation, for the message.
    :param proxy: the proxy in between, without credentials; empty for none.
    :param hide: takes credentials out of a text: what answers may repeat the request's headers.
    :param judges_usability: True if a server that answers this request so cannot be used for any.
    """
    code, words = response.status_code, hide(response.text(windows.LARGEST_SINGLE_ANSWER_BYTES)).split()
    body = " ".join(words[:200])[:200]  # its beginning, in one line
    shown_body = f" ({body})" if body else ""
    kind: type[RegistryError] = RegistryDenied
    reason = f"{url} answered {code}{shown_body}"
    if code == 407:
        reason = (
            f"the proxy {proxy or 'on the way'} to {url} answered 407, so that it wants other credentials:"
            " give them in its URL (eurekube:proxy, EUREKA_PROXY, HTTP_PROXY)"
        )
    elif proxy and code in _PROXY_STATUS_CODES:
        kind = RegistryDenied if code == 403 else RegistryUnreachable
        reason = (
            f"{url} answered {code} through the proxy {proxy}{shown_body}: it may be the proxy that refuses;"
            " check whether it lets this URL through (eurekube:proxy, EUREKA_PROXY, HTTP_PROXY; NO_PROXY"
            " names what needs none), then the Eureka server"
        )
    elif code == 401:
        reason = (
            f"{url} answered 401, so that it wants other credentials: check eurekube:user and"
            " eurekube:password (EUREKA_USER, EUREKA_PASSWORD). A variable is read once: restart the process"
            " if its Secret was rotated, or name a file (EUREKA_PASSWORD_FILE), which is read again"
        )
    elif code == 403:
        reason = (
            f"{url} answered 403: Spring Security's CSRF protection must be off for /eureka/**, the user must"
            " be allowed to write, and a server that has just started answers so as long as it has nothing to"
            " show"
        )
    elif code >= 500:
        kind = RegistryUnreachable
        if code == 503 and not body and what.startswith("list"):
            reason += "; a rate limiter spares eureka.server.rate-limiter-privileged-clients: add eurekube"
    else:
        is_unusable = judges_usability and code in _UNUSABLE_STATUS_CODES
        kind = RegistryUnreachable if is_unusable else RegistryRejected
        if code in _REDIRECT_STATUS_CODES:
            location = hide(response.headers.get("Location", "").rpartition("@")[2])
            reason += f"; it redirects to {location}: use that address"
        elif code == 404:
            reason += "; the service URL usually ends with /eureka (or /eureka/v2)"
    return kind(f"{what}: {reason}", url=url, status_code=code)

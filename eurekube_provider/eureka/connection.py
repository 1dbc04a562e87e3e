"""The connection to one Eureka cluster: URLs and credentials, kept apart from each other.

A connection never shows its credentials: not in ``repr``, not in an error, not in a URL that it gives out.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit, urlunsplit

from eurekube_provider.core.errors import ConfigurationError, FileUnreadable
from eurekube_provider.core.registry_kinds import EUREKA, RegistryKind, registry_kind_of_url
from eurekube_provider.eureka import windows

DEFAULT_MAX_ANSWER_MIB, LARGEST_MAX_ANSWER_MIB = windows.LARGEST_ANSWER_BYTES // 2**20, 4096
"""The default of ``max_answer_mib``, and the largest value that it may have."""

SettingGetter = Callable[[str], str | None]
"""A function that returns the setting of a name such as ``ca-file``; None where it is not set."""


class BatchMode(StrEnum):
    """The ways to send many changes."""

    AUTO = "auto"
    """Batches for many changes, if the connection names every server to which the servers forward."""

    REST = "rest"
    """Always one request for each change."""

    BATCH = "batch"
    """Batches, whichever servers the servers forward to."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One Eureka cluster and how to talk to it.

    :param service_urls: base URLs such as ``http://eureka-1:8761/eureka``, without credentials.
    :param user: for HTTP basic authentication; None for none.
    :param token: a bearer token, instead of user and password.
    :param secret_file: the file of the password or the token, read again once that is refused.
    :param ca_file: PEM file with the authorities to trust for https; None for the usual ones.
    :param client_certificate: PEM file with the certificate to show (mTLS), and ``client_key`` with its key;
        the key may be in the certificate's file.
    :param proxy: URL of a proxy; None for HTTP_PROXY, HTTPS_PROXY and NO_PROXY of the environment.
    :param mode: how many changes at once are sent.
    :param read_timeout_seconds: how long a server may be silent, and how long its whole answer may take; a
        large answer gets more time, in proportion to what has arrived
        (:mod:`~eurekube_provider.runtime.bounded_http`).
    :param max_answer_mib: the largest answer that is read, in MiB, also once it is decompressed.
    """

    service_urls: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    secret_file: Path | None = None
    ca_file: Path | None = None
    client_certificate: Path | None = None
    client_key: Path | None = None
    proxy: str | None = field(default=None, repr=False)
    mode: BatchMode = BatchMode.AUTO
    connect_timeout_seconds: float = windows.CONNECT_TIMEOUT_SECONDS
    read_timeout_seconds: float = windows.READ_TIMEOUT_SECONDS

    registry_kind: ClassVar[RegistryKind] = EUREKA
    max_answer_mib: int = DEFAULT_MAX_ANSWER_MIB

    @classmethod
    def parse(
        cls,
        service_urls: str | Iterable[str],
        user: str | None = None,
        password: str | None = None,
        ca_file: str | Path | None = None,
        *,
        token: str | None = None,
        client_certificate: str | Path | None = None,
        client_key: str | Path | None = None,
        proxy: str | None = None,
        zone: str | None = None,
        mode: str | None = None,
        max_answer_mib: int | str | None = None,
    ) -> Connection:
        """Build a connection from what people write, e.g. Spring's ``defaultZone``.

        :param service_urls: a list, or one string with commas. ``http://user:password@host/eureka`` is
            accepted and split; credentials given separately win. ``zone-a=http://...`` gives a server's zone.
        :param zone: servers of this zone are asked first.
        :param mode: the value of a :class:`BatchMode`; None for ``auto``.
        :param max_answer_mib: None for 128.
        :raises ConfigurationError: no URL is given; an invalid URL, proxy, mode or size; two different
            credentials; a token together with a user; a file that does not exist; a zone without a server.
        """
        texts = service_urls.split(",") if isinstance(service_urls, str) else list(service_urls)
        urls: dict[str, str] = {}
        found: set[tuple[str, str | None]] = set()
        for text in texts:
            if not text.strip():
                continue
            url_zone, written = _split_zone(text.strip())
            try:
                url, url_user, url_password = split_credentials(written)
            except ConfigurationError:
                raise _unusable_url_error(written, *texts) from None
            urls.setdefault(url, url_zone)
            if url_user is not None:
                found.add((url_user, url_password))
        if not urls:
            raise ConfigurationError(
                "no Eureka URL is configured: set eurekube:url in the stack's configuration, --eureka-url or"
                " EUREKA_URL, e.g. http://eureka.example.com:8761/eureka"
            )
        if user is None and len(found) > 1:
            raise ConfigurationError(
                "the Eureka URLs carry different credentials: give one user and password for all of them"
            )
        if user is None and found:
            ((user, url_password),) = found
            password = url_password or password or ""  # the URL may name the user alone
        # A Secret that was made from a file has the file's line end.
        user, password, token = (one and one.rstrip("\r\n") for one in (user, password, token))
        if user and token:
            raise ConfigurationError("Eureka takes a user and password or a bearer token, not both: set one")
        if token and not (token.isascii() and token.isprintable()):
            raise ConfigurationError(
                "Eureka's token has signs in it that no header can carry, or a line's end"
            )
        if zone and zone not in urls.values():
            zones = ", ".join(sorted({known for known in urls.values() if known})) or "none"
            raise ConfigurationError(
                f"no Eureka URL belongs to the zone {zone!r} (zones: {zones}): write {zone}=http://host:8761/eureka"
            )
        if client_key and not client_certificate:
            raise ConfigurationError("a client key is of no use without its client certificate: set both")
        if proxy and not _is_proxy_url(proxy):
            raise ConfigurationError("Eureka's proxy must look like http://host:3128 or https://host:3128")
        if mode and mode not in tuple(BatchMode):
            raise ConfigurationError(f"the Eureka mode {mode!r} must be one of {', '.join(BatchMode)}")
        return cls(
            service_urls=tuple(sorted(urls, key=lambda url: bool(zone) and urls[url] != zone)),
            user=user or None,
            password=password,
            token=token or None,
            proxy=proxy or None,
            mode=BatchMode(mode or BatchMode.AUTO),
            max_answer_mib=_parse_mebibytes(max_answer_mib or DEFAULT_MAX_ANSWER_MIB),
            # Last: some are notified of all else, and not of a file that is on another machine.
            ca_file=_require_file("CA file", ca_file),
            client_certificate=_require_file("client certificate", client_certificate),
            client_key=_require_file("client key", client_key),
        )

    @classmethod
    def from_settings(cls, get_setting: SettingGetter) -> Connection:
        """Build a connection from the settings under :data:`SETTING_NAMES`.

        The operator's flags and file, a stack's configuration and the environment all use these names.

        :param get_setting: returns the setting of a name.
        :raises ConfigurationError: see :meth:`parse`.
        """
        others = {name.replace("-", "_"): get_setting(name) for name in SETTING_NAMES if name != "url"}
        return cls.parse(get_setting("url") or "", **others)


SETTING_NAMES = (
    "url",
    "user",
    "password",
    "token",
    "ca-file",
    "client-certificate",
    "client-key",
    "proxy",
    "zone",
    "mode",
    "max-answer-mib",
)
"""The names of a connection's settings, for :meth:`Connection.from_settings`."""


def setting_from_environment(
    name: str, environment: Mapping[str, str] = os.environ, prefix: str = "EUREKA_"
) -> str | None:
    """Return the environment's setting for one of :data:`SETTING_NAMES`, such as ``EUREKA_CA_FILE``.

    :raises ConfigurationError: the file with the password or token cannot be read.
    """
    variable = f"{prefix}{name.upper().replace('-', '_')}"
    if name in SECRET_SETTING_NAMES and environment.get(f"{variable}_FILE"):
        return read_secret(environment[f"{variable}_FILE"], f"{variable}_FILE")
    return environment.get(variable) or None


SECRET_SETTING_NAMES = ("password", "token")
"""The settings that may be read from a file: ``EUREKA_PASSWORD_FILE`` wins over ``EUREKA_PASSWORD``."""


def read_secret(path: str, where: str) -> str:
    """Return the secret in a file, without its line end and without spaces around it.

    A file with a second line is refused: nobody knows which line is meant, and a client library that gets
    both shows them to everybody in its error.

    :param where: the setting that names the file, for the error.
    :raises ConfigurationError: the file cannot be read, is empty, or has more lines; it is not quoted.
    """
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise FileUnreadable(f"{where}: {path} cannot be read ({reason})") from None
    if not secret:
        raise ConfigurationError(f"{where}: {path} is empty: write the secret into it, on one line")
    if len(secret.splitlines()) > 1:
        raise ConfigurationError(
            f"{where}: {path} has more than one line: write the secret into it, and nothing else, on one line"
        )
    if any(unicodedata.category(sign) == "Cc" for sign in secret):
        raise ConfigurationError(f"{where}: {path} has control characters in it: write the secret alone")
    return secret


def split_credentials(url: str) -> tuple[str, str | None, str | None]:
    """Take the credentials out of a service URL and normalise it.

    :returns: the URL without credentials and without a trailing slash, the user, the password.
    :raises ConfigurationError: it is no http or https URL; the message lacks its credentials.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _unusable_url_error(url) from None
    is_plain = not (parts.query or parts.fragment or "@" in parts.path)
    if parts.scheme not in ("http", "https") or not host or not is_plain:
        raise _unusable_url_error(url)
    shown_host = f"[{host}]" if ":" in host else host
    netloc = shown_host if port is None else f"{shown_host}:{port}"
    clean = urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))
    if parts.username is None:
        return clean, None, None
    return clean, unquote(parts.username), unquote(parts.password or "")


def _split_zone(text: str) -> tuple[str, str]:
    """Return the zone of a service URL given as ``zone=URL``, and the URL; an empty zone for none."""
    name, separator, rest = text.partition("=")
    return (name.strip(), rest.strip()) if separator and "/" not in name and ":" not in name else ("", text)


def _is_proxy_url(url: str) -> bool:
    """Return whether a text is the URL of a usable proxy; ``http`` is assumed for a text without a scheme."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _parse_mebibytes(given: int | str) -> int:
    text = str(given).strip()
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= LARGEST_MAX_ANSWER_MIB):
        raise ConfigurationError(
            f"Eureka's max-answer-mib {text!r} must be a number of MiB from 1 to {LARGEST_MAX_ANSWER_MIB}"
        )
    return int(text)


def _require_file(what: str, path: str | Path | None) -> Path | None:
    """Return the path of a named file, which must exist; None where no file is named.

    :raises FileUnreadable: the file does not exist.
    """
    if not path:
        return None
    if not Path(path).is_file():
        raise FileUnreadable(f"the {what} {path} does not exist")
    return Path(path)


def _unusable_url_error(*urls: str) -> ConfigurationError:
    """Return the error for an unusable URL, which it names unless ``urls`` may contain a part of a password.

    A special character that is not percent-encoded ends the password early: no part of the URL is safe.
    """
    kind = next((one for one in map(registry_kind_of_url, urls) if one is not EUREKA), None)
    if kind is not None:
        return ConfigurationError(
            f"a {kind.schemes[0]}:// URL leads to a {kind.name}, where only syncers register: stacks,"
            " imports, mirrors, drain and undrain are for Eureka; name it as a connection of the operator"
        )
    which = "a Eureka URL" if any("@" in url for url in urls) else f"the Eureka URL {urls[0]!r}"
    return ConfigurationError(
        f"{which} cannot be used: it must look like http://host:8761/eureka or https://host/eureka, without "
        "query or fragment, and a comma, slash, question mark, hash sign or @ in its credentials must be "
        "percent-encoded"
    )

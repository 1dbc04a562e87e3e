"""The connection to one ZooKeeper ensemble: servers, root and credentials, kept apart from each other."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn
from urllib.parse import unquote

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry
from kazoo.security import READ_ACL_UNSAFE, make_digest_acl

from eurekube_provider.core.errors import ConfigurationError, FileUnreadable
from eurekube_provider.core.registry_kinds import ZOOKEEPER, RegistryKind

DEFAULT_ROOT = "/services"
"""Spring Cloud Zookeeper's default node (``spring.cloud.zookeeper.discovery.root``)."""

SESSION_TIMEOUT_SECONDS = 6.0
"""The session's time-out: after two thirds of it the client leaves a silent server. No node ends with it."""

_HOST_PATTERN = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?(/[^?#@]*)?")
_FILE_SETTINGS = ("ca-file", "client-certificate", "client-key")
_kazoo_log = logging.getLogger("eurekube_provider.zookeeper.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)  # a lost connection is reported by the registry's condition, once


@dataclass(frozen=True, slots=True)
class ZooKeeperConnection:
    """One ensemble and how to talk to it. A connection never shows its credentials."""

    hosts: tuple[str, ...]
    root: str = DEFAULT_ROOT
    user: str | None = None  # who alone may change what is written then, and everybody read it
    password: str | None = field(default=None, repr=False)
    is_encrypted: bool = False
    ca_file: Path | None = None
    client_certificate: Path | None = None
    client_key: Path | None = None

    registry_kind: ClassVar[RegistryKind] = ZOOKEEPER

    def __getattr__(self, name: str) -> NoReturn:
        """Raise ConfigurationError for an attribute of Eureka's connections: the caller expects a Eureka."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise ConfigurationError(
            f"{self.service_urls[0]} is a ZooKeeper, where only syncers register: stacks, imports, mirrors,"
            " drain and undrain are for Eureka; name a Eureka's connection"
        )

    @property
    def service_urls(self) -> tuple[str, ...]:
        """The URL of each server, without credentials."""
        scheme = "zookeepers" if self.is_encrypted else "zookeeper"
        return tuple(f"{scheme}://{host}{self.root}" for host in self.hosts)

    def create_client(self) -> KazooClient:
        """Return a client, not started, that tries to connect as long as it runs."""
        ways: dict[str, Any] = {}
        if self.user is not None:
            ours = make_digest_acl(self.user, self.password or "", all=True)
            ways["default_acl"] = [ours, *READ_ACL_UNSAFE]
            ways["auth_data"] = [("digest", f"{self.user}:{self.password or ''}")]
        if self.is_encrypted:
            own, key = self.client_certificate, self.client_key or self.client_certificate
            files = {"ca": self.ca_file, "certfile": own, "keyfile": key}
            ways |= {name: str(path) for name, path in files.items() if path}
            ways |= {"use_ssl": True, "check_hostname": True}
        tries = KazooRetry(max_tries=-1, delay=0.1, max_delay=2.0)
        tries.retry_exceptions = (Exception,)  # else one broken answer would end the client for good
        return KazooClient(
            hosts=",".join(self.hosts),
            timeout=SESSION_TIMEOUT_SECONDS,
            connection_retry=tries,
            logger=_kazoo_log,
            **ways,
        )

    @staticmethod
    def from_settings(get_setting: Callable[[str], Any]) -> ZooKeeperConnection:
        """Build a connection from Eureka's setting names; raise ConfigurationError."""
        for name in ("token", "proxy", "zone", "mode"):
            if str(get_setting(name) or "auto") != "auto":
                raise ConfigurationError(f"a ZooKeeper has no {name}, which is about Eureka: leave it out")
        found = _parse_url(str(get_setting("url")))
        password = str(get_setting("password") or "").rstrip("\r\n") or None  # a file's line end
        if get_setting("user"):
            found = replace(found, user=get_setting("user"), password=password)
        elif not found.password:  # the URL may name the user alone
            found = replace(found, password=password)
        if password and not found.user:
            raise ConfigurationError("ZooKeeper's digest authentication needs a user beside the password")
        files: dict[str, Any] = {
            name.replace("-", "_"): Path(one) for name in _FILE_SETTINGS if (one := get_setting(name))
        }
        if files and not found.is_encrypted:
            raise ConfigurationError("certificates are for TLS: write zookeepers://, or leave them out")
        for path in files.values():
            if not path.is_file():
                raise FileUnreadable(f"the file {path} of a ZooKeeper's certificates does not exist")
        return replace(found, **files)


def _parse_url(url: str) -> ZooKeeperConnection:
    """Return the connection that a URL alone describes; all hosts or the first have the scheme."""
    scheme = url.partition("://")[0].strip()
    credentials, at, rest = url.replace(f"{scheme}://", "").rpartition("@")
    port = 2281 if scheme == "zookeepers" else 2181
    found = [_HOST_PATTERN.fullmatch(text.strip()) for text in rest.split(",")]
    hosts = tuple(dict.fromkeys(f"{one[1]}:{one[2] or port}" for one in found if one))
    roots = {f"/{one[3].strip('/')}" for one in found if one and (one[3] or "").strip("/")} or {DEFAULT_ROOT}
    if not all(found) or len(roots) > 1:
        raise ConfigurationError(
            f"the ZooKeeper URL{'' if at else f' {url!r}'} cannot be used: it must look like"
            " zookeeper://zk-1:2181,zk-2:2181/services, with one root, and a comma, slash or @ in its"
            " credentials must be percent-encoded"
        )
    user, _, password = credentials.partition(":")
    return ZooKeeperConnection(
        hosts, roots.pop(), unquote(user) or None, unquote(password) or None, scheme == "zookeepers"
    )

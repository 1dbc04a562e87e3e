"""One ensemble over one session: each request has a deadline, and each error says why the request failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kazoo import exceptions as kazoo
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import make_acl

from eurekube_provider.core.errors import RegistryDenied, RegistryError, RegistryRejected, RegistryUnreachable
from eurekube_provider.zookeeper.codec import Node, decode_node, unreadable_node
from eurekube_provider.zookeeper.connection import ZooKeeperConnection

CALL_TIMEOUT_SECONDS = 5.0
"""The most seconds that one answer is waited for."""

MAX_PIPELINED_READS = 500
"""The most reads that are sent before the first answer is waited for."""

ANYONE_MAY_CREATE_ACL = make_acl("world", "anyone", read=True, create=True)
"""The ACL of a node that everybody may read, and create nodes below."""

CONFLICT_ERRORS = (kazoo.BadVersionError, kazoo.NodeExistsError, kazoo.NoNodeError)
"""The errors that mean that another client wrote first; the caller reads again."""

_CONNECTION_ERRORS = (
    kazoo.ConnectionLoss,
    kazoo.SessionExpiredError,
    kazoo.OperationTimeoutError,
    KazooTimeoutError,
)

WatchCallback = Callable[[Any], None]
"""A function that kazoo calls with its event once a node or its children change."""


class Ensemble:
    """The servers of one connection, as one client sees them; any number of threads may share it."""

    def __init__(self, connection: ZooKeeperConnection) -> None:
        self.connection = connection
        self.client = connection.create_client()
        self.url = ",".join(connection.service_urls)

    @contextmanager
    def translate_errors(self, what: str) -> Iterator[None]:
        """Turn kazoo's exceptions, except CONFLICT_ERRORS, into a RegistryError that says what was tried."""
        try:
            yield
        except CONFLICT_ERRORS:
            raise
        except (kazoo.NoAuthError, kazoo.AuthFailedError):
            message = f"ZooKeeper did not allow to {what}: its ACL must let our user do so ({self.url})"
            raise RegistryDenied(message, url=self.url) from None
        except _CONNECTION_ERRORS as error:
            raise self.unreachable_error(f" when asked to {what} ({type(error).__name__})") from None
        except (kazoo.KazooException, ValueError) as error:
            message = f"ZooKeeper refused to {what}: {type(error).__name__} {error} ({self.url})"
            raise RegistryRejected(message, url=self.url) from None

    def unreachable_error(self, asked: str = "") -> RegistryError:
        """Return the error for an ensemble that does not answer."""
        message = f"ZooKeeper does not answer{asked}: is a majority of its servers up? ({self.url})"
        return RegistryUnreachable(message, url=self.url)

    def require_connection(self) -> None:
        """Raise while the client is not connected: kazoo would keep a write, and send it much later."""
        if not self.client.connected:
            raise self.unreachable_error()

    def read_nodes(self, paths: Iterable[str], watch: WatchCallback | None = None) -> dict[str, Node | None]:
        """Read nodes of instances, many at once; None for a node that does not exist."""
        found: dict[str, Node | None] = {}
        for path, answer in self._read_pipelined(
            paths, lambda path: self.client.get_async(path, watch=watch)
        ):
            if isinstance(answer, kazoo.NoAuthError):
                found[path] = unreadable_node(path, "its ACL does not let our user read it")
            else:
                found[path] = None if answer is None else decode_node(path, *answer)
        return found

    def list_children(self, paths: Iterable[str], watch: WatchCallback | None = None) -> dict[str, list[str]]:
        """List the children of nodes, many at once; none for a node that is missing or forbids it."""
        listed = self._read_pipelined(paths, lambda path: self.client.get_children_async(path, watch=watch))
        return {path: names if isinstance(names, list) else [] for path, names in listed}

    def list_instance_paths(self, watch: WatchCallback | None = None) -> list[str]:
        """List the paths of all instances; the root and each service call ``watch`` at their next change."""
        root = self.connection.root
        self.require_connection()
        with self.translate_errors(f"look at {root}"):  # which tells of a root that is not there yet
            self.client.exists_async(root, watch=watch).get(timeout=CALL_TIMEOUT_SECONDS)
        names = self.list_children([root], watch)[root]
        listed = self.list_children([f"{root}/{name}" for name in names], watch)
        return [f"{service}/{one}" for service, ids in listed.items() for one in ids]

    def _read_pipelined(self, paths: Iterable[str], ask: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
        self.require_connection()
        wanted = list(paths)
        for first in range(0, len(wanted), MAX_PIPELINED_READS):
            for path, asked in [(path, ask(path)) for path in wanted[first : first + MAX_PIPELINED_READS]]:
                answer = None
                with self.translate_errors(f"read {path}"), suppress(kazoo.NoNodeError):
                    try:
                        answer = asked.get(timeout=CALL_TIMEOUT_SECONDS)
                    except kazoo.NoAuthError as error:  # an ACL of others costs us this one, and no more
                        if path == self.connection.root:
                            raise
                        answer = error
                yield path, answer

    def create_shared_node(self, path: str) -> None:
        """Create a node, unless it exists, below which other users may register, too."""
        acl = [*self.client.default_acl, ANYONE_MAY_CREATE_ACL] if self.client.default_acl else None
        self.client.ensure_path_async(path, acl=acl).get(timeout=CALL_TIMEOUT_SECONDS)

    def close(self) -> None:
        self.client.stop()
        self.client.close()

"""The Kubernetes API as raw JSON.

Configuration, credentials and TLS are the official client's. Its generated models are not used: a watch over
ten thousand endpoints must not build a pydantic object for each.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import SplitResult, unquote, urlencode, urlsplit
from urllib.request import getproxies

import urllib3
import yaml

from eurekube_provider.core.errors import ConfigurationError, KubernetesError, LeadershipLost
from eurekube_provider.core.quoting import REDACTION_PLACEHOLDER
from eurekube_provider.kube.official_client import client, config, rest, tcp_keepalive_socket_options
from eurekube_provider.runtime.bounded_http import AnswerTooLarge, AnswerTooSlow, bounded_pool_classes

_log = logging.getLogger(__name__)

_REQUEST_TIMEOUT = urllib3.Timeout(connect=5.0, read=15.0)
_CONNECT_TIMEOUT_SECONDS = 5.0
_TCP_KEEPALIVE_OPTIONS = tcp_keepalive_socket_options(idle=15, interval=5, count=3)
"""Socket options that end a connection to a vanished host after 30 s, not after a watch's longest silence."""

_IN_CLUSTER_NAMESPACE_PATH = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

TOKEN_FILE_READ_SECONDS = 60.0
"""Seconds after which the token file of a kubeconfig is read again, as client-go does."""

PAGE_SIZE = 500
PAGE_SIZE_OF_LARGE_OBJECTS = 50
"""The number of objects in a page of large ones: 50 EndpointSlices of 100 endpoints take 7 MiB parsed."""

_LARGEST_ANSWER_BYTES = 512 * 2**20
"""The most bytes of an answer that are read: a page of objects of 1 MiB, hardly more than etcd accepts."""

LONGEST_EVENT_BYTES = 64 * 2**20
"""The most bytes of one event of a watch: many times the 1.5 MiB of the largest object that etcd accepts."""

MERGE_PATCH_TYPE = "application/merge-patch+json"
APPLY_PATCH_TYPE = "application/apply-patch+yaml"
STRATEGIC_MERGE_PATCH_TYPE = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class ApiResource:
    """A kind of Kubernetes object, with the names that its URL paths in the API consist of."""

    group: str
    version: str
    plural: str

    @property
    def group_path(self) -> str:
        """The URL path below which the API serves all kinds of the group."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """Return the URL path of all objects, of a namespace's objects, or of one object."""
        parts = [self.group_path]
        if namespace:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


SYNCERS = ApiResource("eurekube.io", "v1alpha1", "eurekasyncers")
SERVICES = ApiResource("", "v1", "services")
ENDPOINT_SLICES = ApiResource("discovery.k8s.io", "v1", "endpointslices")
NAMESPACES = ApiResource("", "v1", "namespaces")
EVENTS = ApiResource("events.k8s.io", "v1", "events")
LEASES = ApiResource("coordination.k8s.io", "v1", "leases")
NODES = ApiResource("", "v1", "nodes")
PODS = ApiResource("", "v1", "pods")
WORKLOADS_BY_KIND = {
    "Deployment": ApiResource("apps", "v1", "deployments"),
    "StatefulSet": ApiResource("apps", "v1", "statefulsets"),
    "DaemonSet": ApiResource("apps", "v1", "daemonsets"),
}
"""The kinds of objects with a pod template that kubectl can patch."""

MIRRORS = ApiResource("eurekube.io", "v1alpha1", "eurekamirrors")
INGRESSES = ApiResource("networking.k8s.io", "v1", "ingresses")
GATEWAYS = ApiResource("gateway.networking.k8s.io", "v1", "gateways")
HTTP_ROUTES = ApiResource("gateway.networking.k8s.io", "v1", "httproutes")
SERVICE_CIDRS = ApiResource("networking.k8s.io", "v1", "servicecidrs")
STACK_REFRESHES = ApiResource("eurekube.io", "v1alpha1", "stackrefreshes")
PULUMI_STACKS = ApiResource("pulumi.com", "v1", "stacks")

_WHOLE_OBJECT_MEDIA_TYPES = ("application/json", "application/json")
"""The media types to accept for a list, and for a watch's events."""

_METADATA_ONLY_MEDIA_TYPES = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
)


class KubeAccess:
    """A client of one API server with one identity; any number of threads may share it.

    :param namespace: the namespace of this process: its pod's, or the kubeconfig context's.
    :param may_write: called directly before each request that changes something; if it returns False, the
        request is not sent and :class:`LeadershipLost` is raised.
    :ivar is_in_cluster: True if this process runs in a pod, and reaches the API as its ServiceAccount.
    """

    sends_writes: ClassVar[bool] = True
    """False if no write is sent: each write then gets its own body as the answer, as in a dry run."""

    def __init__(
        self,
        configuration: client.Configuration,
        namespace: str = "default",
        may_write: Callable[[], bool] = lambda: True,
        accept: tuple[str, str] = _WHOLE_OBJECT_MEDIA_TYPES,
        pool: urllib3.PoolManager | None = None,
    ) -> None:
        self._configuration = configuration
        self._pool = pool or _make_pool(configuration)
        self._may_write = may_write
        self._accept = accept
        self._sent_token = ""
        self.namespace = namespace
        self.is_in_cluster = False
        self.server = str(configuration.host)

    def with_write_check(self, may_write: Callable[[], bool]) -> KubeAccess:
        """Return a copy of this access that asks another ``may_write`` before each change."""
        return KubeAccess(self._configuration, self.namespace, may_write, self._accept, self._pool)

    def with_metadata_only(self) -> KubeAccess:
        """Return a copy of this access whose lists and watches have only the metadata of the objects."""
        return KubeAccess(
            self._configuration, self.namespace, self._may_write, _METADATA_ONLY_MEDIA_TYPES, self._pool
        )

    @classmethod
    def load(
        cls, kubeconfig: str | Path | Mapping[str, Any] | None = None, context: str | None = None
    ) -> KubeAccess:
        """Return an access to the API server, by the first configuration that is found.

        In this order: ``kubeconfig``; the ServiceAccount of the pod in which this process runs; KUBECONFIG or
        ``~/.kube/config``.

        :param kubeconfig: the path of a file, or the content of one.
        :raises ConfigurationError: none of them works, or one names something that does not exist, or a proxy
            that cannot be used.
        """
        configuration = client.Configuration()
        # Else each request with a token would look for a proxy in all variables of the environment again, of
        # which each Service adds several to a pod.
        configuration.proxy = None
        # A pooled connection that the server closed meanwhile is worth one more try, nothing else is.
        configuration.retries = urllib3.Retry(
            total=1, connect=0, redirect=0, status=0, respect_retry_after_header=False
        )
        configuration.connection_pool_maxsize = 32
        configuration.socket_options = _TCP_KEEPALIVE_OPTIONS
        namespace = ""
        in_cluster = (
            kubeconfig is None and context is None and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
        )
        try:
            if isinstance(kubeconfig, Mapping):
                config.load_kube_config_from_dict(  # type: ignore[no-untyped-call]
                    kubeconfig, context=context, client_configuration=configuration
                )
            elif in_cluster:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
                if _IN_CLUSTER_NAMESPACE_PATH.is_file():
                    namespace = _IN_CLUSTER_NAMESPACE_PATH.read_text("utf-8").strip()
            else:
                path = str(kubeconfig) if kubeconfig is not None else None
                if path is not None and not Path(path).is_file():
                    raise ConfigurationError(f"the kubeconfig {path} does not exist")
                config.load_kube_config(  # type: ignore[no-untyped-call]
                    path, context=context, client_configuration=configuration
                )
                chosen = _chosen_context(path, context)
                namespace = str(chosen.get("namespace") or "")
                user = _user_settings(path, str(chosen.get("user") or ""))
                _require_credentials_of_command(user, configuration)
                _follow_token_file(user, configuration)
        except (config.ConfigException, OSError) as error:
            raise ConfigurationError(
                f"no way to the Kubernetes API was found ({error}): run inside a cluster,"
                " or set KUBECONFIG or --kubeconfig"
            ) from None
        except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError) as error:
            where = kubeconfig if isinstance(kubeconfig, str | Path) else os.environ.get("KUBECONFIG", "")
            raise ConfigurationError(
                f"the kubeconfig{f' {where}' if where else ''} is not in the form of one, and cannot be read"
                f" ({' '.join(str(error).split())})"
            ) from None
        _set_proxy(configuration)
        access = cls(configuration, namespace or "default")
        access.is_in_cluster = in_cluster
        return access

    def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Read an object or a list.

        :raises KubernetesError: the request failed; ``status_code`` is 404 where the object does not exist.
        """
        return self.request("GET", path, query)

    def serves_kind(self, resource: ApiResource, timeout_seconds: float | None = None) -> bool:
        """Return whether the API server serves a kind, which needs no permission; True if it does not say.

        A request for objects of the kind does not answer the question: without permission the API server
        answers 403, whether the kind exists or not.
        """
        try:
            kinds = self.request("GET", resource.group_path, timeout_seconds=timeout_seconds).get("resources")
        except KubernetesError as error:
            return error.status_code != 404
        return kinds is None or any(one.get("name") == resource.plural for one in kinds)

    def pages(
        self,
        path: str,
        timeout_seconds: float | None = None,
        query: Mapping[str, str] | None = None,
        page_size: int = PAGE_SIZE,
    ) -> Iterator[dict[str, Any]]:
        """Yield a list page by page; a watch can begin at the ``resourceVersion`` of the last page.

        :param timeout_seconds: for each page; default as for :meth:`request`.
        :raises KubernetesError: as :meth:`get`; also for an answer that is no list, which would pass for an
            empty one.
        """
        query = {**(query or {}), "limit": str(page_size)}
        while True:
            page = self.request("GET", path, query, timeout_seconds=timeout_seconds)
            if not {"items", "metadata"} <= page.keys():
                raise _no_list_error(path, self)
            yield page
            token = (page["metadata"] or {}).get("continue")
            if not token:
                return
            query = {**query, "continue": token}

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout_seconds: float | None = None,
    ) -> dict[str, Any]:
        """Send one request and return the object in the API's answer.

        :param path: from :meth:`ApiResource.path`.
        :param timeout_seconds: default 5 to connect, and 15 for the whole answer; a large answer gets more
            time, in proportion to what has arrived (:mod:`~eurekube_provider.runtime.bounded_http`).
        :raises KubernetesError: no answer came, or not a success.
        :raises LeadershipLost: the request would change something, and this replica may not write now.
        """
        if method != "GET" and not self._may_write():
            raise LeadershipLost(f"{method} {path}: not sent, since another replica may lead by now")
        timeout = _REQUEST_TIMEOUT if timeout_seconds is None else urllib3.Timeout(timeout_seconds)
        response = self._send(method, path, query, body, content_type, timeout)
        data = response.data
        if response.status >= 300:
            raise _error_from_answer(method, path, response.status, self._without_token(data))
        try:
            answer = json.loads(data) if data else {}
        except (ValueError, RecursionError):
            answer = None
        is_resource = path.startswith(("/api/", "/apis/"))
        if not isinstance(answer, dict) or (is_resource and not answer.keys() & {"kind", "metadata"}):
            # Without a status code: the API server itself is away, and something else answers.
            raise KubernetesError(
                f"{method} {path}: {self.server} answered {response.status} with something that is no object "
                "of Kubernetes: is this a Kubernetes API?"
            )
        return answer

    def watch(
        self,
        path: str,
        query: Mapping[str, str],
        read_timeout_seconds: float,
        on_open: Callable[[], None] = lambda: None,
    ) -> Iterator[dict[str, Any]]:
        """Yield a watch's events until the server ends it.

        :param read_timeout_seconds: the longest silence; bookmarks come about once a minute.
        :raises KubernetesError: the watch was refused, was broken off or fell silent.
        """
        timeout = urllib3.Timeout(connect=_CONNECT_TIMEOUT_SECONDS, read=read_timeout_seconds)
        response = self._send("GET", path, {**query, "watch": "true"}, None, "", timeout)
        try:
            if response.status >= 300:
                data = self._without_token(response.data)
                raise _error_from_answer("watch", path, response.status, data)
            on_open()
            rest = bytearray()
            for chunk in response.stream(65536, decode_content=True):
                rest += chunk
                *lines, rest = rest.split(b"\n") if b"\n" in chunk else [rest]
                for line in lines:
                    if line:
                        yield json.loads(line)
                if len(rest) > LONGEST_EVENT_BYTES:
                    raise KubernetesError(
                        f"watch {path}: {self.server} sends an event of more than"
                        f" {LONGEST_EVENT_BYTES // 2**20} MiB, and so much is not read"
                    )
        except urllib3.exceptions.HTTPError as error:
            raise KubernetesError(f"watch {path}: the connection to {self.server} broke ({error})") from None
        except ValueError as error:
            raise KubernetesError(f"watch {path}: {self.server} sent no JSON ({error})") from None
        finally:
            response.close()

    def _without_token(self, data: bytes) -> bytes:
        """Return an answer without our token: a gateway may answer with the request's headers."""
        token = self._sent_token.rpartition(" ")[2].encode()
        return data.replace(token, REDACTION_PLACEHOLDER.encode()) if token else data

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        content_type: str,
        timeout: urllib3.Timeout,
    ) -> urllib3.BaseHTTPResponse:
        of_list, of_events = self._accept
        is_watch = query is not None and "watch" in query
        headers = {"Accept": of_events if is_watch else of_list, "User-Agent": "eurekube"}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            token = self._configuration.auth_settings().get("BearerToken")  # renewed there before it expires
        except Exception as error:  # noqa: BLE001 - that of a file, or of what a kubeconfig calls for a token
            raise KubernetesError(
                f"{method} {path}: not sent, as the token cannot be read ({error})"
            ) from None
        if token is not None and token["value"]:
            headers[token["key"]] = self._sent_token = token["value"]
        url = self.server + path
        if query:
            url += f"?{urlencode(query)}"
        try:
            return self._pool.request(
                method,
                url,
                headers=headers,
                body=None if body is None else json.dumps(body),
                timeout=timeout,
                preload_content=not is_watch,
            )
        except AnswerTooSlow:
            raise KubernetesError(
                f"{method} {path}: {self.server} began to answer, and did not end in time; check the API"
                " server, and the network between"
            ) from None
        except AnswerTooLarge:
            raise KubernetesError(
                f"{method} {path}: {self.server} answers with more than {_LARGEST_ANSWER_BYTES // 2**20} MiB,"
                " and so much is not read: is this a Kubernetes API?"
            ) from None
        except urllib3.exceptions.HTTPError as error:
            cause = getattr(error, "reason", None) or error
            raise KubernetesError(
                f"{method} {path}: no answer from the Kubernetes API at {self.server} ({cause})"
            ) from None


def _set_proxy(configuration: client.Configuration) -> None:
    """Set the proxy that kubectl would use, of the kubeconfig or else the environment, with credentials."""
    source, proxy = "the proxy-url of the kubeconfig", configuration.proxy
    if not proxy:
        source, found = "HTTPS_PROXY, HTTP_PROXY or ALL_PROXY", getproxies()
        proxy = found.get(urlsplit(configuration.host).scheme) or found.get("all")
        direct = f"localhost,127.0.0.0/8,::1,{found.get('no') or ''}".replace("*.", ".")
        if proxy and rest.should_bypass_proxies(configuration.host, direct):
            proxy = None
        elif proxy and "://" not in proxy:
            proxy = f"http://{proxy}"
    configuration.proxy, configuration.no_proxy = proxy, ""
    if not proxy:
        return
    parts = _split_proxy_url(proxy, source)
    if parts.scheme in ("http", "https"):
        if parts.username:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            configuration.proxy_headers = urllib3.make_headers(proxy_basic_auth=credentials)
        return
    if find_spec("socks") is None:
        raise ConfigurationError(
            f"the proxy to the Kubernetes API cannot be used: {source} names a SOCKS proxy, which needs the"
            " Python package PySocks: install it (pip install PySocks), or name an HTTP proxy"
        )
    # As with kubectl the proxy finds the API server's address, which only its network may know.
    configuration.proxy = parts._replace(scheme="socks5h").geturl()


def _split_proxy_url(url: str, source: str) -> SplitResult:
    with suppress(ValueError):  # of an odd port or IPv6 address
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "socks5", "socks5h") and parts.hostname and parts.port != 0:
            return parts
    raise ConfigurationError(
        f"the proxy to the Kubernetes API cannot be used: {source} must look like http://host:3128,"
        " https://host:3128 or socks5://host:1080"
    )


def _make_pool(configuration: client.Configuration) -> urllib3.PoolManager:
    """Return the official client's connections, which read no answer without bounds."""
    pool = rest.RESTClientObject(configuration).pool_manager
    pool.pool_classes_by_scheme = bounded_pool_classes(_LARGEST_ANSWER_BYTES, pool.pool_classes_by_scheme)
    return pool


def namespace_exists(access: KubeAccess, namespace: str) -> bool:
    """Return whether a namespace exists; True if the API server does not say."""
    try:
        access.get(NAMESPACES.path(name=namespace))
    except KubernetesError as error:
        return error.status_code != 404
    return True


def list_objects_by_name(
    access: KubeAccess, resource: ApiResource, name: str, namespace: str | None = None
) -> list[dict[str, Any]]:
    """List the objects of one name: at most one in each namespace.

    The permission to list does not always include reading single objects. For this field selector the API
    server reads only one object.

    :raises KubernetesError: as :meth:`KubeAccess.get`; also for an answer that is no list, which would pass
        for an empty one.
    """
    path = resource.path(namespace)
    answer = access.get(path, {"fieldSelector": f"metadata.name={name}"})
    if "items" not in answer:
        raise _no_list_error(path, access)
    return list(answer["items"] or ())


def _no_list_error(path: str, access: KubeAccess) -> KubernetesError:
    return KubernetesError(f"GET {path}: {access.server} answered with something that is no list")


def is_api_unavailable(error: KubernetesError) -> bool:
    """Return whether an error means that the API server is away: it gave no answer, or 5xx."""
    return (error.status_code or 500) >= 500


def _chosen_context(path: str | None, context: str | None) -> Mapping[str, Any]:
    """Return the chosen context of a kubeconfig; empty where it has none, which is not needed everywhere."""
    try:
        contexts, active = config.list_kube_config_contexts(path)  # type: ignore[no-untyped-call]
    except config.ConfigException:
        contexts, active = [], {"context": {}}
    found: Mapping[str, Any] = next((item for item in contexts if item["name"] == context), active)["context"]
    return found


def _user_settings(path: str | None, user: str) -> Any:
    """Return the settings of a kubeconfig's user, with the path of their file; None where there are none."""
    default = config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    files = config.kube_config.KubeConfigMerger(path or default)  # type: ignore[no-untyped-call]
    has_users = bool(user and files.config.safe_get("users"))
    named = files.config["users"].get_with_name(user, safe=True) if has_users else None
    return named["user"] if named is not None and named.safe_get("user") else None


def _require_credentials_of_command(settings: Any, configuration: client.Configuration) -> None:
    """Check that the command of a kubeconfig's user gave credentials: the official client logs a failure, and
    would go on as nobody, who is refused everything.
    """
    if settings is None or "exec" not in settings or configuration.api_key or configuration.cert_file:
        return
    raise ConfigurationError(
        f"the command {settings['exec'].safe_get('command')!r} of the kubeconfig's user gave no credentials"
        " for the Kubernetes API: install it, or log in with it, and try it by kubectl"
    )


def _follow_token_file(settings: Any, configuration: client.Configuration) -> None:
    """Take the token from its file, if a kubeconfig's user has one, now and again: the official client reads
    the file once, and the token expires.
    """
    if settings is None or "tokenFile" not in settings or "token" in settings or "auth-provider" in settings:
        return
    file = Path(str(settings.path)).absolute().parent / str(settings["tokenFile"])
    read_at = -math.inf

    def read_token(_: client.Configuration) -> None:
        nonlocal read_at
        if time.monotonic() - read_at < TOKEN_FILE_READ_SECONDS:
            return
        read_at = time.monotonic()
        try:
            token = file.read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            extra = {"file": str(file), "error": str(error)}
            _log.warning("failed to read the token for the Kubernetes API, using the former one", extra=extra)
            return
        if token:
            configuration.api_key["BearerToken"] = f"Bearer {token}"

    read_token(configuration)
    configuration.refresh_api_key_hook = read_token  # type: ignore[assignment]


def _error_from_answer(method: str, path: str, status_code: int, data: bytes) -> KubernetesError:
    try:
        answer = json.loads(data)
        message, reason = str(answer["message"]), str(answer.get("reason") or "")
    except (ValueError, KeyError, TypeError):
        message, reason = data.decode(errors="replace")[:200] or "no text", ""
    return KubernetesError(
        f"{method} {path}: the Kubernetes API answered {status_code}: {message}",
        status_code=status_code,
        reason=reason,
    )

"""Answers Pulumi's engine, one method a request: a thin shell around ``registrations``.

Source: proto/pulumi/provider.proto of pulumi/pulumi. A request waits for Eureka in a thread of its own; one
process serves one provider, the stack's default one or one that a program has made.
"""

from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

import grpc
from google.protobuf import any_pb2, empty_pb2

from eurekube_provider.core.errors import ConfigurationError, EurekubeError
from eurekube_provider.core.identity import StackOwner
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.stack_identity import DEFAULT_ORGANIZATION
from eurekube_provider.provider import native_guard
from eurekube_provider.provider.configuration import PROGRAM_KEYS, Configuration
from eurekube_provider.provider.differences import detailed
from eurekube_provider.provider.functions import invoke
from eurekube_provider.provider.native_resource import APPLICATION_KIND, KINDS, NativeResource, Urn
from eurekube_provider.provider.protocol import (
    engine_pb2,
    engine_pb2_grpc,
    plugin_pb2,
    provider_pb2_grpc,
    status_pb2,
)
from eurekube_provider.provider.protocol import provider_pb2 as proto
from eurekube_provider.provider.served_schema import served_schema
from eurekube_provider.provider.wire import Path, hidden, received, sent, with_secrets
from eurekube_provider.registrations.cancellation import CANCELLATION
from eurekube_provider.registrations.connections import configured_connection
from eurekube_provider.registrations.importing import imported_application, imported_instance
from eurekube_provider.registrations.names import as_written, camel, path_as_written
from eurekube_provider.registrations.property_check import CheckFailure
from eurekube_provider.registrations.resource import Found, told_on_standard_error
from eurekube_provider.registrations.servers import PEERS
from eurekube_provider.version import __version__

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _telling(method: _Method) -> _Method:
    """Answer an error of ours with its one sentence; anything else is a bug, and keeps its traceback."""

    @wraps(method)
    def answered(self: ProviderServicer, request: Any, context: Any) -> Any:
        try:
            return method(self, request, context)
        except EurekubeError as error:
            _abort(context, hidden(printable(as_written(str(error))), request), error)
        except Exception:
            if context.is_active():
                context.abort(grpc.StatusCode.UNKNOWN, traceback.format_exc())
            raise

    return answered  # type: ignore[return-value]


def _or_guard(method: _Method) -> _Method:
    """Answer a request about the guard of an operator, which is no registration."""
    answer = native_guard.ANSWERS[method.__name__]

    @wraps(method)
    def answered(self: ProviderServicer, request: Any, context: Any) -> Any:
        if native_guard.is_guard(request.urn, request.type):
            return answer(request)
        return method(self, request, context)

    return answered  # type: ignore[return-value]


_DEFAULT_NAME = re.compile(r"default(?:_(\d+_\d+_\d+)(?:_.*)?)?")
"""What the engine calls a stack's own provider: ``default``, with the version that is asked for."""


class ProviderServicer(provider_pb2_grpc.ResourceProviderServicer):
    """Answers all that the engine asks one provider.

    :param engine_address: where the engine takes what is to be shown: it hides a plugin's own output.
    """

    def __init__(self, engine_address: str = "") -> None:
        self._configuration = Configuration()
        self._name = ""  # of the provider, which an older engine says to the check of its configuration alone
        self._engine_address = engine_address
        self._engine: engine_pb2_grpc.EngineStub | None = None
        self._lock = threading.Lock()

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - gRPC's names
        """Say what this provider can do."""
        self._engine_address = request.engine_address or self._engine_address
        return proto.ProviderHandshakeResponse(
            accept_secrets=True, accept_resources=False, accept_outputs=True
        )

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """The version."""
        return plugin_pb2.PluginInfo(version=__version__)

    def Attach(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Take the engine's address, where this process was there before."""
        self._engine_address = request.address
        return empty_pb2.Empty()  # type: ignore[attr-defined]

    @_telling
    def GetSchema(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """The schema of the package."""
        return proto.GetSchemaResponse(schema=served_schema())

    @_telling
    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Refuse a configuration that cannot be used. It is kept as it is written, credentials as secrets.

        What is a program's own under the same namespace is not kept: a state would have it once more.
        """
        self._name = Urn.parse(request.urn).name
        configuration = _configuration(request.news, self._name)
        inputs = with_secrets(request.news, configuration.secret_keys())
        for key in PROGRAM_KEYS & inputs.fields.keys():
            del inputs.fields[key]
        # Of a named property the engine shows the value, and any may hold a credential.
        told = [
            CheckFailure("", each.reason if each.property == "url" else f"{each.property}: {each.reason}")
            for each in configuration.problems()
        ]
        return proto.CheckResponse(inputs=inputs, failures=_failures(told))

    @_telling
    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Compare two configurations: nothing in them replaces what is registered.

        Another URL may be another spelling. Each resource compares its servers itself.
        """
        olds = _config_values(request.old_inputs if request.HasField("old_inputs") else request.olds)
        news = _config_values(request.news)
        changed = sorted(key for key in {*olds, *news} if olds.get(key) != news.get(key))
        some, none = proto.DiffResponse.DIFF_SOME, proto.DiffResponse.DIFF_NONE
        return proto.DiffResponse(changes=some if changed else none, diffs=changed)

    @_telling
    def Configure(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Keep the configuration; credentials come from there, or from the environment."""
        CANCELLATION.begin_run()
        self._configuration = _configuration(request.args, request.name or self._name)
        return proto.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=False, acceptOutputs=True
        )

    @_telling
    @_or_guard
    def Check(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Complete and normalise what a program wrote, and refuse what Eureka could not hold."""
        olds, news = received(request.olds), received(request.news)
        resource = self._resource(request)
        checked, secrets = resource.check(Urn.parse(request.urn), olds, news)
        inputs = resource.as_inputs(checked.properties, {path[0] for path in secrets})
        return proto.CheckResponse(inputs=sent(inputs, secrets), failures=_failures(checked.problems))

    @_telling
    @_or_guard
    def Diff(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Compare as instances, and tell property by property what a program changed."""
        olds, news = received(request.olds).properties, received(request.news).properties
        resource = self._resource(request)
        found = resource.registration.diff(olds, news)
        # A state of the dynamic provider is written anew, under this one's names.
        is_changed = found.changes or native_guard.DYNAMIC in request.olds.fields
        details: dict[str, Any] = {}
        if is_changed:
            before = received(request.old_inputs).properties if request.HasField("old_inputs") else olds
            details = detailed(before, news, found.replaces)
        some, none = proto.DiffResponse.DIFF_SOME, proto.DiffResponse.DIFF_NONE
        return proto.DiffResponse(
            changes=some if is_changed else none,
            replaces=[camel(name) for name in found.replaces],
            stables=[camel(name) for name in KINDS[_type(request.urn, request.type)].kind.stables],
            diffs=sorted({path.split(".")[0].split("[")[0] for path in details}),
            detailedDiff=details,
            hasDetailedDiff=bool(details),
        )

    @_telling
    @_or_guard
    def Create(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Register all or none."""
        news = received(request.properties)
        resource = self._resource(request)
        if request.preview:
            return proto.CreateResponse(
                properties=sent(resource.previewed({}, news.properties), news.secrets)
            )
        with CANCELLATION.bounded(request.timeout), _half_made(news.secrets):
            created = resource.registration.create(news.properties)
        state = resource.as_outputs(created.properties)
        return proto.CreateResponse(id=created.id, properties=sent(state, news.secrets))

    @_telling
    @_or_guard
    def Read(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """What Eureka holds; without a state of what an id names, for ``pulumi import`` and ``get``."""
        state, inputs = received(request.properties), received(request.inputs)
        resource = self._resource(request)
        if not {"owner", "service_url"} <= state.properties.keys():
            found = self._imported(request.id, request.urn, _type(request.urn, request.type))
            secrets: frozenset[Path] = frozenset()
        else:
            found = resource.registration.read(state.properties)
            # What no program names may hold what was a secret of one, and no state says so.
            secrets = state.secrets | inputs.secrets
            if found is not None:
                secrets |= {("instances", name) for name in found.unnamed}
        if found is None:
            return proto.ReadResponse(id="")
        hidden = {path[0] for path in secrets}
        outputs = resource.as_outputs(found.properties, state.properties.keys())
        asked = resource.as_inputs(found.inputs, hidden | inputs.properties.keys())
        return proto.ReadResponse(
            id=request.id, properties=sent(outputs, secrets), inputs=sent(asked, secrets)
        )

    @_telling
    @_or_guard
    def Update(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Register what came and changed, then remove what went."""
        olds, news = received(request.olds), received(request.news)
        resource = self._resource(request)
        if request.preview:
            foreseen = resource.previewed(olds.properties, news.properties)
            return proto.UpdateResponse(properties=sent(foreseen, news.secrets))
        with CANCELLATION.bounded(request.timeout), _half_made(olds.secrets, request.id):
            state = resource.as_outputs(resource.registration.update(olds.properties, news.properties))
        return proto.UpdateResponse(properties=sent(state, news.secrets))

    @_telling
    @_or_guard
    def Delete(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Remove; what belongs to somebody else by now is left alone, and that is said."""
        state = received(request.properties)
        with CANCELLATION.bounded(request.timeout):
            self._resource(request).registration.delete(state.properties)
        return empty_pb2.Empty()  # type: ignore[attr-defined]

    @_telling
    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Answer a function of the package."""
        given = received(request.args).properties
        answer = invoke(request.tok, given, self._configuration, is_preview=request.preview)
        return proto.InvokeResponse(**{"return": sent(answer)})

    @_telling
    def Construct(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Make a component."""
        from eurekube_provider.provider.components import construct

        return construct(request, context, self._engine_address)

    def List(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """The instances, or the applications, that Eureka lists: what can be imported."""
        try:
            listed = PEERS.of(configured_connection(self._configuration)).list_instances()
        except EurekubeError as error:
            context.abort(grpc.StatusCode.UNKNOWN, as_written(str(error)))
            return
        if request.token == APPLICATION_KIND.token:
            ids = sorted({each.application for each in listed})
        else:
            ids = sorted("/".join(each.key) for each in listed)
        for id_ in ids[: request.limit or None]:
            yield proto.ListResponse(result=proto.ListResponse.Result(id=id_, name=id_.rpartition("/")[2]))

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """End the drains that wait; the next update goes on with them."""
        CANCELLATION.cancel()
        return empty_pb2.Empty()  # type: ignore[attr-defined]

    # Drains may have all threads that there are for calls.
    Cancel.experimental_thread_pool = ThreadPoolExecutor(1)  # type: ignore[attr-defined]

    def _resource(self, request: Any) -> NativeResource:
        return NativeResource(
            KINDS[_type(request.urn, request.type)],
            self._configuration,
            lambda sentence: self._tell(request.urn, hidden(sentence, request)),
        )

    def _tell(self, urn: str, sentence: str) -> None:
        """Have the engine show a warning about a resource."""
        sentence = as_written(printable(sentence))
        if not self._engine_address:
            told_on_standard_error(sentence)
            return
        with self._lock:
            if self._engine is None:
                # It is on this machine, whatever proxy the environment names.
                channel = grpc.insecure_channel(  # type: ignore[no-untyped-call]
                    self._engine_address, options=[("grpc.enable_http_proxy", 0)]
                )
                self._engine = engine_pb2_grpc.EngineStub(channel)
        request = engine_pb2.LogRequest(severity=engine_pb2.WARNING, message=sentence, urn=urn)
        with suppress(grpc.RpcError):  # it is only a word beside what was done
            self._engine.Log(request, timeout=5)

    def _imported(self, id_: str, urn: str, token: str) -> Found | None:
        connection = configured_connection(self._configuration)
        parsed = Urn.parse(urn)
        organization = self._configuration.organization or DEFAULT_ORGANIZATION
        owner = StackOwner(organization, parsed.project, parsed.stack, parsed.name)
        find = imported_application if token == APPLICATION_KIND.token else imported_instance
        return find(id_, owner, ",".join(connection.service_urls), PEERS.of(connection))


class _half_made:  # noqa: N801 - reads as a statement
    """Has an error carry the message for the engine that keeps what was half made in the state."""

    def __init__(self, secrets: frozenset[Path], id_: str = "") -> None:
        self._secrets = secrets
        self._id = id_

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _type: Any, error: BaseException | None, _trace: Any) -> None:
        if isinstance(error, EurekubeError) and error.half_made is not None:
            id_, state = error.half_made
            error.detail = proto.ErrorResourceInitFailed(  # type: ignore[attr-defined]
                id=self._id or id_,
                properties=sent(state, self._secrets),
            )


def _abort(context: Any, message: str, error: EurekubeError) -> None:
    """End the call with a sentence, and with the detail that the error carries."""
    detail = getattr(error, "detail", None)
    if detail is None:
        context.abort(grpc.StatusCode.UNKNOWN, message)
        return
    detail.reasons.append(message)
    packed = any_pb2.Any()  # type: ignore[attr-defined]
    packed.Pack(detail)
    code = grpc.StatusCode.UNKNOWN
    status = status_pb2.Status(code=code.value[0], message=message, details=[packed])
    serialized = status.SerializeToString()  # type: ignore[no-untyped-call]
    context.set_trailing_metadata((("grpc-status-details-bin", serialized),))
    context.abort(code, message)


def _failures(problems: Any) -> list[Any]:
    return [
        proto.CheckFailure(property=path_as_written(each.property), reason=as_written(each.reason))
        for each in problems
    ]


def _type(urn: str, type_: str) -> str:
    """A resource's type; an older engine sends it in the URN alone."""
    found = type_ or urn.split("::")[2].rpartition("$")[2]
    if found not in KINDS:
        raise ConfigurationError(f"there is no resource {found!r} (there are {', '.join(KINDS)})")
    return found


def _config_values(message: Any) -> dict[str, Any]:
    """A configuration's keys; Pulumi sends objects of it as JSON."""
    return {camel(key): item for key, item in received(message).properties.items()}


def _configuration(message: Any, name: str) -> Configuration:
    values = _config_values(message)
    version = str(values.pop("version", None) or "")
    return Configuration(values, is_default=not name or _is_engines(name, version))


def _is_engines(name: str, version: str) -> bool:
    """Whether the engine made a provider for the stack; a program may call its own ``default``, too.

    The engine's has the version that is asked for in its name, and none in its inputs where none is.
    """
    found = _DEFAULT_NAME.fullmatch(name)
    if found is None or not version:
        return found is not None
    return found[1] == re.split("[-+]", version)[0].replace(".", "_")

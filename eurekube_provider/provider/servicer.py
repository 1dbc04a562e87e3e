"""The gRPC service for Pulumi's engine, a thin layer over ``registrations``: one method for each request.

Source: proto/pulumi/provider.proto of pulumi/pulumi. A request waits for Eureka in a thread of its own; one
process serves one provider, the stack's default provider or one that a program has made.
"""

from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

import grpc
from google.protobuf import any_pb2, empty_pb2

from eurekube_provider.core.errors import ConfigurationError, EurekubeError, OwnershipConflict
from eurekube_provider.core.identity import (
    DYNAMIC_OPERATOR_GUARD_TYPE,
    NATIVE_OPERATOR_GUARD_TYPE,
    cluster_name_of_owner,
    owner_in_words,
)
from eurekube_provider.core.plan import describe_owner
from eurekube_provider.core.quoting import printable
from eurekube_provider.provider import listing
from eurekube_provider.provider.configuration import KEYS_OF_PROJECT_PROGRAM, Configuration
from eurekube_provider.provider.differences import detailed_diff
from eurekube_provider.provider.functions import invoke
from eurekube_provider.provider.native_resource import (
    INSTANCE_IDS_OUTPUT,
    RESOURCE_KINDS_BY_TOKEN,
    NativeResource,
    UrnParts,
    refuse_stack_shared_by_everybody,
    require_default_connection,
    require_do_owner,
    require_instance_id,
    resource_type,
    stateless_owner,
)
from eurekube_provider.provider.protocol import (
    engine_pb2,
    engine_pb2_grpc,
    plugin_pb2,
    provider_pb2_grpc,
    status_pb2,
)
from eurekube_provider.provider.protocol import provider_pb2 as proto
from eurekube_provider.provider.served_schema import package_schema_json
from eurekube_provider.provider.wire import (
    PropertyPath,
    decode_properties,
    encode_properties,
    hide_secrets,
    mark_secrets,
)
from eurekube_provider.registrations.called_addresses import ProgramClaims
from eurekube_provider.registrations.cancellation import CANCELLATION
from eurekube_provider.registrations.connections import (
    DEFAULT_CONNECTION_NAME,
    configured_connection,
    must_fail_unreadable_refresh,
)
from eurekube_provider.registrations.declared_resources import DECLARED_RESOURCES
from eurekube_provider.registrations.importing import (
    import_application,
    import_instance,
    mark_not_adopted_unless_owned,
    without_instances,
)
from eurekube_provider.registrations.names import path_in_camel_case, to_camel_case, with_camel_case_names
from eurekube_provider.registrations.properties import Properties
from eurekube_provider.registrations.property_check import CheckFailure
from eurekube_provider.registrations.registry_lists import SHARED_REGISTRY_LIST_CACHE
from eurekube_provider.registrations.resource import (
    APPLICATION_REGISTRATION_KIND,
    FoundResource,
    print_to_standard_error,
)
from eurekube_provider.registrations.servers import SHARED_PEERS
from eurekube_provider.registrations.values import UNKNOWN
from eurekube_provider.resources.guarded_operator import (
    guard_id,
    is_guard_changed,
    refuse_deletion_while_needed,
)
from eurekube_provider.version import __version__

_Method = TypeVar("_Method", bound=Callable[..., Any])

_DYNAMIC_PROVIDER_PROPERTY = "__provider"
"""A property that only states of a dynamic provider have."""


def _answer_errors(method: _Method) -> _Method:
    """Decorate a method: answer an EurekubeError with its message, any other with its traceback."""

    @wraps(method)
    def wrapper(self: ProviderServicer, request: Any, context: Any) -> Any:
        try:
            return method(self, request, context)
        except EurekubeError as error:
            message = hide_secrets(printable(with_camel_case_names(str(error))), request)
            if error.partial_resource is not None:
                self._attach_partial_resource(*error.partial_resource, message, request, context)
            context.abort(grpc.StatusCode.UNKNOWN, message)
        except Exception:
            if context.is_active():
                context.abort(grpc.StatusCode.UNKNOWN, traceback.format_exc())
            raise

    return wrapper  # type: ignore[return-value]


_DEFAULT_PROVIDER_NAME_PATTERN = re.compile(r"default(?:_(\d+_\d+_\d+)(?:_.*)?)?")
"""The engine's name of a stack's default provider: ``default``, with the requested version."""


class ProviderServicer(provider_pb2_grpc.ResourceProviderServicer):
    """The gRPC service of one provider; messages go to the engine, which hides a plugin's output."""

    def __init__(self, engine_address: str = "") -> None:
        self._configuration = Configuration()
        self._name = ""  # of the provider, which an older engine says to the check of its configuration alone
        self._engine_address = engine_address
        self._can_ask_for_refreshes = False  # an older engine
        self._engine: engine_pb2_grpc.EngineStub | None = None
        self._lock = threading.Lock()
        self._syncers_instance_by_urn: dict[str, str] = {}  # read in this run, with its owner

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - gRPC's names
        """Return the capabilities of this provider."""
        self._engine_address = request.engine_address or self._engine_address
        self._can_ask_for_refreshes = request.supports_refresh_before_update
        return proto.ProviderHandshakeResponse(
            accept_secrets=True, accept_resources=False, accept_outputs=True
        )

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Return the provider's version."""
        return plugin_pb2.PluginInfo(version=__version__)

    def Attach(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Store the engine's address, for a process that was started before the engine."""
        self._engine_address = request.address
        return empty_pb2.Empty()  # type: ignore[attr-defined]

    @_answer_errors
    def GetSchema(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Return the schema of the package."""
        return proto.GetSchemaResponse(schema=package_schema_json())

    @_answer_errors
    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Refuse an unusable configuration; return it with credentials as secrets, without the keys of this
        project's program, so that the state does not repeat them.
        """
        self._name = UrnParts.parse(request.urn).name
        configuration = _configuration(request.news, self._name)
        inputs = mark_secrets(request.news, configuration.secret_keys())
        for key in KEYS_OF_PROJECT_PROGRAM & inputs.fields.keys():
            del inputs.fields[key]
        # Of a named property the engine shows the value, and any may hold a credential.
        found = [
            CheckFailure(
                "",
                each.reason if each.property in ("url", "connections") else f"{each.property}: {each.reason}",
            )
            for each in configuration.problems()
        ]
        return proto.CheckResponse(inputs=inputs, failures=_check_failures(found, request))

    @_answer_errors
    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Compare two configurations; another URL replaces nothing: each resource compares its servers."""
        olds = _config_values(request.old_inputs if request.HasField("old_inputs") else request.olds)
        news = _config_values(request.news)
        changed = sorted(key for key in {*olds, *news} if olds.get(key) != news.get(key))
        some, none = proto.DiffResponse.DIFF_SOME, proto.DiffResponse.DIFF_NONE
        return proto.DiffResponse(changes=some if changed else none, diffs=changed)

    @_answer_errors
    def Configure(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Store the configuration; credentials come from there, or from the environment."""
        CANCELLATION.begin_run()
        DECLARED_RESOURCES.claims = ProgramClaims()
        # Only pulumi do, which has no stack, calls its provider by no name.
        is_stateless = request.urn.endswith("::")
        self._configuration = replace(
            _configuration(request.args, request.name or self._name), is_stateless=is_stateless
        )
        return proto.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=False, acceptOutputs=True
        )

    @_answer_errors
    def Check(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Complete and normalise a program's properties, and refuse those that Eureka could not hold."""
        if _is_guard(request):  # only the component writes it
            return proto.CheckResponse(inputs=request.news)
        olds, news = decode_properties(request.olds), decode_properties(request.news)
        resource = self._resource(request)
        refuse_stack_shared_by_everybody(self._configuration, UrnParts.parse(request.urn).project)
        if self._configuration.is_stateless:
            require_do_owner(self._configuration, _resource_token(request))
            require_default_connection(news.properties)
            if theirs := olds.properties.get("seen_owner"):
                raise OwnershipConflict(f"it belongs to {theirs}, and was left as it is")
        if theirs := self._syncers_instance_by_urn.get(request.urn):
            # A problem of a property would only be a warning to an import, and go into the state.
            raise OwnershipConflict(
                f"{theirs} and was left as it is: a stack would keep it after its pod ended. Import it once "
                "that syncer is deleted or selects it no more; get reads it"
            )
        checked, secrets = resource.check(UrnParts.parse(request.urn), olds, news)
        inputs = resource.as_inputs(checked.properties, {path[0] for path in secrets})
        failures = _check_failures(checked.problems, request)
        return proto.CheckResponse(inputs=encode_properties(inputs, secrets), failures=failures)

    @_answer_errors
    def Diff(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Compare a state with checked properties, and report a program's changes property by property."""
        state, asked = decode_properties(request.olds), decode_properties(request.news)
        olds, news = state.properties, asked.properties
        some, none = proto.DiffResponse.DIFF_SOME, proto.DiffResponse.DIFF_NONE
        # A state of the dynamic provider is written again, under this one's names.
        is_moved = _DYNAMIC_PROVIDER_PROPERTY in request.olds.fields
        if _is_guard(request):
            return proto.DiffResponse(changes=some if is_moved or is_guard_changed(olds, news) else none)
        resource = self._resource(request)
        found = resource.registration.diff(olds, news)
        is_state_of_earlier_release = resource.is_state_of_earlier_release(olds)
        # The engine itself hides no value within another one, unless the state is written again.
        shows_secret = state.shows_any_of(resource.output_secret_paths(asked.secrets))
        is_changed = found.has_changes or is_moved or is_state_of_earlier_release or shows_secret
        details: dict[str, Any] = {}
        if is_changed:
            before = (
                decode_properties(request.old_inputs).properties if request.HasField("old_inputs") else olds
            )
            details = detailed_diff(before, news, found.replaces)
            if is_state_of_earlier_release:
                details[to_camel_case(INSTANCE_IDS_OUTPUT)] = proto.PropertyDiff(kind=proto.PropertyDiff.ADD)
        return proto.DiffResponse(
            changes=some if is_changed else none,
            replaces=[to_camel_case(name) for name in found.replaces],
            stables=[to_camel_case(name) for name in resource.kind.stables],
            diffs=sorted({path.split(".")[0].split("[")[0] for path in details}),
            detailedDiff=details,
            # Else the engine would show all properties as changed.
            hasDetailedDiff=is_changed and not is_moved,
        )

    @_answer_errors
    def Create(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Register all instances of a resource, or none."""
        news = decode_properties(request.properties)
        if _is_guard(request):
            id_ = "" if request.preview else guard_id(news.properties)
            return proto.CreateResponse(id=id_, properties=encode_properties(news.properties, news.secrets))
        resource = self._resource(request)
        if self._configuration.is_stateless:
            self._require_unregistered(request, news.properties)
        secrets = resource.output_secret_paths(news.secrets)
        if request.preview:
            foreseen = resource.preview_outputs({}, news.properties)
            return proto.CreateResponse(properties=encode_properties(foreseen, secrets))
        with CANCELLATION.limit_waits(request.timeout):
            id_, state = resource.registration.create(news.properties)
        return proto.CreateResponse(
            id=id_,
            properties=encode_properties(resource.as_outputs(state), secrets),
            refresh_before_update=self._asks_for_refresh,
        )

    @_answer_errors
    def Read(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Return a resource as Eureka holds it; without our state, what an id names (import and get)."""
        if _is_guard(request):  # no server knows it
            return proto.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)
        state, inputs = decode_properties(request.properties), decode_properties(request.inputs)
        resource = self._resource(request)
        if not {"owner", "service_url"} <= state.properties.keys():
            found = self._import(request)
            if found and cluster_name_of_owner(owner := found.properties["owner"]):
                self._syncers_instance_by_urn[request.urn] = f"{found.id} belongs to {owner_in_words(owner)}"
            secrets: frozenset[PropertyPath] = frozenset()
            asks_for_refresh = False  # a program that only gets it reads it anyway
        else:
            asks_for_refresh = self._asks_for_refresh
            try:
                if self._may_skip_failed_read and self._configuration.is_offline:
                    raise ConfigurationError("eurekube:offline or EUREKUBE_OFFLINE says that nobody is asked")
                found = resource.registration.read(state.properties)
            except EurekubeError as error:
                if not self._may_skip_failed_read:
                    raise
                self._warn(
                    request, f"it was not compared with Eureka, so that the state is taken as it is: {error}"
                )
                return proto.ReadResponse(
                    id=request.id,
                    properties=request.properties,
                    inputs=request.inputs,
                    refresh_before_update=asks_for_refresh,
                )
            # An undeclared instance may hold a secret of a former program, and no state marks the secret.
            secrets = state.secrets | inputs.secrets
            if found is not None:
                secrets |= {("instances", name) for name in found.undeclared_keys}
        if found is None:
            return proto.ReadResponse(id="")
        kept = {path[0] for path in secrets} | inputs.properties.keys()
        outputs = resource.as_outputs(found.properties, state.properties.keys())
        asked = resource.as_inputs(found.inputs, kept)
        return proto.ReadResponse(
            id=found.id or request.id,
            properties=encode_properties(outputs, resource.output_secret_paths(secrets)),
            inputs=encode_properties(asked, secrets),
            refresh_before_update=asks_for_refresh,
        )

    @_answer_errors
    def Update(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Register new and changed instances, then remove those that the program does not have any more."""
        olds, news = decode_properties(request.olds), decode_properties(request.news)
        if _is_guard(request):
            return proto.UpdateResponse(properties=encode_properties(news.properties, news.secrets))
        resource = self._resource(request)
        if self._configuration.is_stateless:
            olds = replace(olds, properties=self._read_stateless_registration(request))
            if news.properties.get("owner") != olds.properties["owner"]:
                raise ConfigurationError(f"{request.id} keeps application and instanceId: create another one")
        secrets = resource.output_secret_paths(news.secrets)
        if request.preview:
            foreseen = resource.preview_outputs(olds.properties, news.properties)
            return proto.UpdateResponse(properties=encode_properties(foreseen, secrets))
        with CANCELLATION.limit_waits(request.timeout):
            state = resource.as_outputs(resource.registration.update(olds.properties, news.properties))
        return proto.UpdateResponse(
            properties=encode_properties(state, secrets), refresh_before_update=self._asks_for_refresh
        )

    @_answer_errors
    def Delete(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Remove a resource's instances; report and leave those that belong to somebody else by now."""
        state = decode_properties(request.properties).properties
        if _is_guard(request):
            refuse_deletion_while_needed(state)
            return empty_pb2.Empty()  # type: ignore[attr-defined]
        resource = self._resource(request)
        if self._configuration.is_stateless:
            state = self._read_stateless_registration(request)
        with CANCELLATION.limit_waits(request.timeout):
            resource.registration.delete(state)
        return empty_pb2.Empty()  # type: ignore[attr-defined]

    @_answer_errors
    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Answer a call of a function of the package."""
        given = decode_properties(request.args).properties
        answer = invoke(request.tok, given, self._configuration, is_preview=request.preview)
        return proto.InvokeResponse(**{"return": encode_properties(answer)})

    @_answer_errors
    def Construct(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Make a component and its resources."""
        from eurekube_provider.provider.components import construct

        return construct(request, context, self._engine_address)

    @_answer_errors
    def List(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: ARG002, N802
        """Return the ids in Eureka's list, of instances or applications, which can be read and imported."""
        query = decode_properties(request.query).properties
        if UNKNOWN in query.values():
            return iter([proto.ListResponse(computed=proto.ListResponse.Computed())])
        listed = SHARED_PEERS.get(configured_connection(self._configuration)).list_instances()
        found = listing.find_ids(request.token, query, listed)
        return iter(listing.build_page(found, request.limit, request.page_size, request.continuation_token))

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """End the waits of drains; the next update continues the drains."""
        CANCELLATION.cancel()
        return empty_pb2.Empty()  # type: ignore[attr-defined]

    # Drains may occupy all threads of the pool for calls.
    Cancel.experimental_thread_pool = ThreadPoolExecutor(1)  # type: ignore[attr-defined]

    @property
    def _asks_for_refresh(self) -> bool:
        """Return whether the engine is asked to refresh before each update; never in an offline preview."""
        configuration = self._configuration
        is_wanted = configuration.refreshes_before_update and not configuration.is_offline
        return self._can_ask_for_refreshes and is_wanted

    @property
    def _may_skip_failed_read(self) -> bool:
        """Return whether a read that fails may keep the state: the refresh may be automatic."""
        is_unasked = self._can_ask_for_refreshes and self._configuration.refreshes_before_update
        return is_unasked and not must_fail_unreadable_refresh()

    def _resource(self, request: Any) -> NativeResource:
        return NativeResource(
            RESOURCE_KINDS_BY_TOKEN[_resource_token(request)],
            self._configuration,
            lambda sentence: self._warn(request, sentence),
            lambda sentence: self._log_to_engine(request.urn, sentence, engine_pb2.INFO, is_ephemeral=True),
        )

    def _warn(self, request: Any, sentence: str) -> None:
        self._log_to_engine(request.urn, hide_secrets(sentence, request), engine_pb2.WARNING)

    def _log_to_engine(self, urn: str, sentence: str, severity: Any, *, is_ephemeral: bool = False) -> None:
        """Make the engine show a sentence about a resource, perhaps until the next one replaces it."""
        sentence = with_camel_case_names(printable(sentence))
        if not self._engine_address:
            print_to_standard_error(sentence)
            return
        with self._lock:
            if self._engine is None:
                # It is on this machine, whatever proxy the environment names.
                channel = grpc.insecure_channel(  # type: ignore[no-untyped-call]
                    self._engine_address, options=[("grpc.enable_http_proxy", 0)]
                )
                self._engine = engine_pb2_grpc.EngineStub(channel)
        request = engine_pb2.LogRequest(severity=severity, message=sentence, urn=urn, ephemeral=is_ephemeral)
        with suppress(grpc.RpcError):  # a lost message changes no result
            self._engine.Log(request, timeout=5)

    def _attach_partial_resource(
        self, created_id: str, state: Mapping[str, Any], message: str, request: Any, context: Any
    ) -> None:
        """Attach a half-made resource to the error of a creation or an update: the engine keeps its state."""
        is_update = "olds" in request.DESCRIPTOR.fields_by_name
        secrets = decode_properties(request.olds if is_update else request.properties).secrets
        detail = proto.ErrorResourceInitFailed(
            id=request.id if is_update else created_id,
            properties=encode_properties(state, secrets),
            reasons=[message],
            refresh_before_update=self._asks_for_refresh,
        )
        packed = any_pb2.Any()  # type: ignore[attr-defined]
        packed.Pack(detail)
        code: Any = grpc.StatusCode.UNKNOWN
        status = status_pb2.Status(code=code.value[0], message=message, details=[packed])
        serialized = status.SerializeToString()  # type: ignore[no-untyped-call]
        context.set_trailing_metadata((("grpc-status-details-bin", serialized),))

    def _import(self, request: Any) -> FoundResource | None:
        """Return the instances that the id of a request names, as a resource that is yet to be adopted."""
        kind = RESOURCE_KINDS_BY_TOKEN[_resource_token(request)]
        connection = configured_connection(self._configuration)
        place = request.id.strip().partition("/")[::2]
        owner = self._resource(request).owner(UrnParts.parse(request.urn), *place)
        find = import_application if kind is APPLICATION_REGISTRATION_KIND else import_instance
        urls, peers = ",".join(connection.service_urls), SHARED_PEERS.get(connection)
        found = find(request.id, owner, urls, peers)
        if found is None:
            if kind is APPLICATION_REGISTRATION_KIND:  # the engine would say that it does not exist
                listed = SHARED_REGISTRY_LIST_CACHE.instances_of_application(place[0].upper(), peers)
                if owners := {one.owner for one in listed if one.owner}:
                    theirs = f"{request.id} belongs to {owner_in_words(min(owners))}, and was left as it is"
                    self._warn(request, theirs)
            return None
        # The inputs as a refresh writes them, so that the next refresh finds nothing new.
        inputs = kind.inputs(found.properties)
        return mark_not_adopted_unless_owned(
            replace(found, inputs=without_instances(inputs, found.unasked_keys))
        )

    def _require_unregistered(self, request: Any, news: Properties) -> None:
        """Refuse to create an instance without a state where anybody's instance is registered already."""
        require_do_owner(self._configuration, _resource_token(request))
        require_instance_id(news)
        name = news.get("connection") or DEFAULT_CONNECTION_NAME
        peers = SHARED_PEERS.get(configured_connection(self._configuration, name=name))
        held = peers.read(str(news["application"]), str(news["instance_id"]))
        if held is not None:
            key = f"{held.application}/{held.instance_id}"
            raise OwnershipConflict(
                f"{key} {describe_owner(held)}, and was left as it is: patch changes what is yours"
            )

    def _read_stateless_registration(self, request: Any) -> Properties:
        """Read the registration of a request from Eureka, which this owner must have made without a state."""
        require_do_owner(self._configuration, _resource_token(request))
        found = self._import(request)
        if found is None:
            raise ConfigurationError(f"Eureka holds no {request.id}")
        if "service_url" not in found.properties:
            theirs = found.properties["owner"] or "no Eurekube"
            ours = stateless_owner(self._configuration, *request.id.partition("/")[::2])
            raise OwnershipConflict(f"{request.id} belongs to {theirs}, not to {ours}, and was left as it is")
        return found.properties


def _check_failures(problems: Any, request: Any) -> list[Any]:
    return [
        proto.CheckFailure(
            property=path_in_camel_case(each.property),
            reason=hide_secrets(with_camel_case_names(each.reason), request),
        )
        for each in problems
    ]


def _is_guard(request: Any) -> bool:
    """Return whether a request is about the guard of an operator, which only the component makes."""
    return resource_type(request) in (NATIVE_OPERATOR_GUARD_TYPE, DYNAMIC_OPERATOR_GUARD_TYPE)


def _resource_token(request: Any) -> str:
    """Return the type of a request's resource, which must be one of this provider's."""
    found = resource_type(request)
    if found not in RESOURCE_KINDS_BY_TOKEN:
        raise ConfigurationError(
            f"there is no resource {found!r} (there are {', '.join(RESOURCE_KINDS_BY_TOKEN)})"
        )
    return found


def _config_values(message: Any) -> dict[str, Any]:
    """Return a configuration's values by key; Pulumi sends its objects as JSON."""
    return {to_camel_case(key): item for key, item in decode_properties(message).properties.items()}


def _configuration(message: Any, name: str) -> Configuration:
    values = _config_values(message)
    version = str(values.pop("version", None) or "")
    return Configuration(values, is_default_provider=not name or _is_made_by_engine(name, version))


def _is_made_by_engine(name: str, version: str) -> bool:
    """Return whether the engine made the provider of this name; a program may name its own ``default``, too.
    The engine's provider has the requested version in its name, and none in its inputs where none is
    requested.
    """
    found = _DEFAULT_PROVIDER_NAME_PATTERN.fullmatch(name)
    if found is None or not version:
        return found is not None
    return found[1] == re.split("[-+]", version)[0].replace(".", "_")

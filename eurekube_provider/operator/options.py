"""Options of the operator: a flag, an environment variable and a key of the file share one name.

``--watch-namespace`` is ``WATCH_NAMESPACE`` and ``watch-namespace:``. A flag wins over the environment, and
the environment over the file. Every error names the place of the value, the fault, and the remedy.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import yaml

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.networks import parse_networks
from eurekube_provider.core.objects import is_object_name
from eurekube_provider.core.registry_kinds import ZOOKEEPER, registry_kind_of_url
from eurekube_provider.eureka.connection import (
    DEFAULT_MAX_ANSWER_MIB,
    LARGEST_MAX_ANSWER_MIB,
    BatchMode,
    Connection,
    read_secret,
)


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type of option values.

    :ivar parse: parses a text; raises ValueError with the allowed values, e.g. ``must be true or false``.
    :ivar yaml_types: the Python types of YAML values that the file may have for such an option.
    :ivar metavar: the placeholder in the help for options that have none of their own.
    """

    parse: Callable[[str], Any]
    yaml_types: tuple[type, ...] = (str,)
    type_name: str = "text; put it in quotes"
    metavar: str = "NAME"


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the operator.

    :ivar default: the value of an option that is not given, or given as an empty text.
    :ivar help: half a sentence.
    :ivar default_text: the default in words for the help; empty to show the value itself.
    :ivar value_if_empty: the value for an empty text; None for the default.
    """

    name: str
    metavar: str
    value_type: ValueType
    default: Any
    help: str
    default_text: str = ""
    value_if_empty: Any = None
    has_environment_variable: bool = True

    def read(self, given: SourcedText | None) -> Any:
        """Return the parsed value, or the default where no text is given.

        :raises ConfigurationError: the text cannot be used.
        """
        if given is None or (not given.text and self.value_if_empty is None):
            return self.default
        if not given.text:
            return self.value_if_empty
        try:
            return self.value_type.parse(given.text)
        except ConfigurationError as error:
            raise ConfigurationError(f"{given.where}: {error}") from None
        except ValueError as error:
            raise ConfigurationError(f"{given.where}: {given.text!r} {error}") from None

    @property
    def default_in_help(self) -> str:
        """The default in the form that the help shows; empty for an option without a default."""
        if self.default_text or self.default in (None, (), frozenset()):
            return self.default_text
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


def option_field(
    kind: ValueType, default: Any, text: str, *, name: str = "", metavar: str = "", **more: Any
) -> Any:
    """Return a dataclass field that is an option with the field's name, or with ``name``."""
    made = Option(name, metavar or kind.metavar, kind, default, text, **more)
    return field(default=default, metadata={"option": made})


def options_of(dataclass_type: type[Any]) -> dict[str, Option]:
    """Return the options among a dataclass's fields, by field name."""
    return {
        item.name: replace(known, name=known.name or item.name.replace("_", "-"))
        for item in fields(dataclass_type)
        if isinstance(known := item.metadata.get("option"), Option)
    }


@dataclass(frozen=True, slots=True)
class SourcedText:
    """An option's text, and where it was given: ``--log-level``, ``LOG_LEVEL`` or ``FILE: log-level``."""

    text: str
    where: str


def environment_variable_name(name: str) -> str:
    return name.upper().replace("-", "_")


def add_flags(parser: argparse.ArgumentParser, options: Iterable[Option]) -> None:
    """Add a flag for each option; its help names the variable."""
    for option in options:
        parser.add_argument(f"--{option.name}", metavar=option.metavar, help=help_of(option))


def help_of(option: Option) -> str:
    """Return an option's help with its default and variable; each ``%`` is doubled for argparse."""
    default = f" [{option.default_in_help}]" if option.default_in_help else ""
    also = f"; {environment_variable_name(option.name)}" if option.has_environment_variable else ""
    return f"{option.help}{default}{also}".replace("%", "%%")


def flag_or_environment_texts(
    options: Iterable[Option], flags: Mapping[str, str | None], environment: Mapping[str, str]
) -> dict[str, SourcedText]:
    """Return the texts of flags, or else of the environment, by option.

    An empty text counts as not given, unless the option has a value for it.

    :param flags: by the option's name with underscores, as argparse has them.
    """
    found: dict[str, SourcedText] = {}
    for option in options:
        from_environment = (
            environment.get(environment_variable_name(option.name))
            if option.has_environment_variable
            else None
        )
        for text, where in (
            (flags.get(option.name.replace("-", "_")), f"--{option.name}"),
            (from_environment, environment_variable_name(option.name)),
        ):
            if text is not None and (text.strip() or option.value_if_empty is not None):
                found[option.name] = SourcedText(text.strip(), where)
                break
    return found


def read_yaml_mapping(path: str, where: str) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    :raises ConfigurationError: it cannot be read, is no YAML, or is no mapping.
    """
    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{where}: {path} cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it is no text"
        raise ConfigurationError(f"{path}: this is no YAML{place} ({problem})") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: must be keys with values, such as log-level: DEBUG")
    return {str(key): value for key, value in document.items()}


def parse_named_entries(written: Any, place: str, key: str, example: str) -> dict[str, dict[str, Any]]:
    """Check and return the file's entries below names that a person chose, such as those of connections.

    :param example: one line, e.g. ``eu-1: {url: http://...}``.
    :raises ConfigurationError: a name is invalid, or a name has no keys below it.
    """
    if not isinstance(written, Mapping):
        raise ConfigurationError(f"{place}: must be names with a {key} each, e.g. {example}")
    for name, entries in written.items():
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
            raise ConfigurationError(
                f"{place}: {name!r} must be a name of small letters, digits and dashes, in quotes if it is a "
                "number"
            )
        if not isinstance(entries, Mapping):
            raise ConfigurationError(
                f"{place}: {name}: must be keys such as {key}, not {type(entries).__name__}"
            )
    return {name: {str(one): value for one, value in entries.items()} for name, entries in written.items()}


def texts_from_mapping(
    where: str, written: Mapping[str, Any], options: Iterable[Option], secrets: Iterable[str]
) -> dict[str, SourcedText]:
    """Return the texts of a mapping whose keys are option names.

    :param where: the file, and the key above where there is one.
    :param secrets: names that may be given only through a file: ``password-file`` and not ``password``.
    :raises ConfigurationError: an unknown key, a value of another type, a secret.
    """
    known = {option.name: option for option in options}
    found: dict[str, SourcedText] = {}
    for key, value in written.items():
        place = f"{where}: {key}"
        if key in secrets:
            raise ConfigurationError(
                f"{place}: a secret must not stand in this file: write it into a file of its own and name "
                f"that with {key}-file"
            )
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise ConfigurationError(f"{place}: there is no such key; {hint}")
        found[key] = SourcedText(_flag_text_of_yaml_value(place, value, known[key].value_type), place)
    return found


def _flag_text_of_yaml_value(place: str, value: Any, kind: ValueType) -> str:
    if value is None:
        return ""
    if isinstance(value, list) and list in kind.yaml_types:
        return ",".join(_flag_text_of_yaml_value(place, item, TEXT_TYPE) for item in value)
    # A bool is an int for Python, and `no` is one for YAML.
    if isinstance(value, kind.yaml_types) and (not isinstance(value, bool) or bool in kind.yaml_types):
        return str(value).lower() if isinstance(value, bool) else str(value)
    raise ConfigurationError(f"{place}: {value!r} must be {kind.type_name}")


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _parse_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.1 <= value <= 86400:
        raise ValueError("must be a number of seconds between 0.1 and 86400")
    return value


def make_checking_parser(
    is_right: Callable[[str], object], complaint: str, read: Callable[[str], Any] = str
) -> Callable[[str], Any]:
    """Return a parser that raises ``complaint`` for a wrong text: see :attr:`ValueType.parse`."""

    def parse(text: str) -> Any:
        if not is_right(text):
            raise ValueError(complaint)
        return read(text)

    return parse


def choice_type(*allowed: str, read: Callable[[str], str] = str.lower) -> ValueType:
    """Return a value type of a few allowed words, in any case."""
    parse = make_checking_parser(
        lambda text: read(text) in allowed, f"must be one of {', '.join(allowed)}", read
    )
    return ValueType(parse, metavar="|".join(allowed))


_parse_bool = make_checking_parser(
    lambda text: text.lower() in ("true", "false"),
    "must be true or false",
    lambda text: text.lower() == "true",
)
_parse_existing_file = make_checking_parser(
    lambda text: Path(text).is_file(),
    "is no file that can be read: check the path, and what is mounted there",
)
_parse_http_url = make_checking_parser(
    lambda text: text.startswith(("http://", "https://")), "must start with http:// or https://"
)
_parse_object_name = make_checking_parser(
    is_object_name, "must be a Kubernetes object's name: lower case letters, digits, '-' and '.'"
)
_parse_whole_seconds = make_checking_parser(
    lambda text: re.fullmatch(r"\d{1,5}", text) and int(text) <= 86400,
    "must be a whole number of seconds from 0 to 86400",
    int,
)
_parse_mebibytes = make_checking_parser(
    lambda text: re.fullmatch(r"[1-9][0-9]{0,3}", text) and int(text) <= LARGEST_MAX_ANSWER_MIB,
    f"must be a number of MiB from 1 to {LARGEST_MAX_ANSWER_MIB}",
    int,
)

TEXT_TYPE = ValueType(str)
NAME_LIST_TYPE = ValueType(
    _split_names, (str, list), "a list of texts, or one text with commas", "NAME[,NAME...]"
)
SECONDS_TYPE = ValueType(_parse_seconds, (int, float, str), "a number of seconds", "SECONDS")
BOOL_TYPE = ValueType(_parse_bool, (bool, str), "true or false", "true|false")
FILE_TYPE = ValueType(_parse_existing_file, metavar="FILE")
HTTP_URL_TYPE = ValueType(_parse_http_url, metavar="URL")
OBJECT_NAME_TYPE = ValueType(_parse_object_name)
NETWORKS_TYPE = ValueType(
    lambda text: parse_networks(filter(None, map(str.strip, text.split(",")))),
    (str, list),
    "a list of networks, or one text with commas",
    "CIDR[,CIDR...]",
)
MEBIBYTES_TYPE = ValueType(_parse_mebibytes, (int, str), "a whole number of MiB", "MIB")
WHOLE_SECONDS_TYPE = ValueType(_parse_whole_seconds, (int, str), "a whole number of seconds", "SECONDS")


def key_value_pairs_type(metavar: str, example: str) -> ValueType:
    """Return a value type of ``KEY=VALUE`` pairs, as ``example`` shows; the file may have a list."""

    def parse(text: str) -> frozenset[tuple[str, str]]:
        pairs = [item.strip().partition("=") for item in text.split(",") if item.strip()]
        if not all(source and target for source, _, target in pairs):
            raise ValueError(f"must be {example}")
        return frozenset((source, target) for source, _, target in pairs)

    return replace(NAME_LIST_TYPE, parse=parse, metavar=metavar)


CONNECTION_OPTIONS = (
    Option(
        "url",
        "URL[,URL...]",
        replace(NAME_LIST_TYPE, parse=str),
        None,
        "the Eureka servers, e.g. http://eureka:8761/eureka; or a ZooKeeper's, e.g. zookeeper://zk-1:2181",
    ),
    Option("user", "NAME", TEXT_TYPE, None, "user for HTTP basic authentication"),
    Option(
        "password-file",
        "FILE",
        TEXT_TYPE,
        None,
        "file with the user's password; read again once it is refused",
    ),
    Option(
        "token-file",
        "FILE",
        TEXT_TYPE,
        None,
        "file with a bearer token, instead of user and password; read again once it is refused",
    ),
    Option("ca-file", "FILE", FILE_TYPE, None, "PEM file with the authorities to trust for https"),
    Option("client-certificate", "FILE", FILE_TYPE, None, "PEM file with the certificate to show (mTLS)"),
    Option(
        "client-key",
        "FILE",
        FILE_TYPE,
        None,
        "PEM file with its key, unless that lies in the certificate's file",
    ),
    Option(
        "proxy", "URL", TEXT_TYPE, None, "proxy to Eureka", default_text="HTTP_PROXY, HTTPS_PROXY, NO_PROXY"
    ),
    Option("zone", "NAME", TEXT_TYPE, None, "ask the servers given as NAME=URL first"),
    Option(
        "mode",
        "auto|rest|batch",
        choice_type(*BatchMode),
        str(BatchMode.AUTO),
        "how many changes at once are sent",
    ),
    Option(
        "max-answer-mib",
        "MIB",
        MEBIBYTES_TYPE,
        DEFAULT_MAX_ANSWER_MIB,
        "the largest answer that is read, in MiB, also once it is decompressed",
    ),
)
"""Options of a connection; the flags of the connection ``default`` have the prefix ``eureka-``."""


def build_connection(
    given: Mapping[str, SourcedText | None],
    secrets: Mapping[str, SourcedText | str | None],
    missing_url_error: str,
) -> Connection:
    """Return one connection from its options.

    :param secrets: by name: password and token, or the file that holds it.
    :raises ConfigurationError: no URL is given, or a value cannot be used.
    """
    url = given.get("url")
    if url is None or not url.text:
        raise ConfigurationError(missing_url_error)
    files = {name: one for name, one in secrets.items() if isinstance(one, SourcedText) and one.text}
    plain = {name: one for name, one in secrets.items() if isinstance(one, str)}
    known = {
        **plain,
        **{name: read_secret(file.text, file.where) for name, file in files.items()},
        **{option.name: option.read(given.get(option.name)) for option in CONNECTION_OPTIONS},
    }
    try:
        if registry_kind_of_url(url.text) is ZOOKEEPER:
            return cast("Connection", _zookeeper_connection(known.get))
        connection = Connection.from_settings(known.get)
        file = files.get("password" if connection.token is None else "token")
        return replace(connection, secret_file=Path(file.text) if file else None)
    except ConfigurationError as error:
        raise ConfigurationError(f"{url.where}: {error}") from None


def _zookeeper_connection(known: Callable[[str], Any]) -> Any:
    """Return a connection to a ZooKeeper; its package is loaded only here."""
    try:
        from eurekube_provider.zookeeper.connection import ZooKeeperConnection
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kazoo":
            raise
        raise ConfigurationError(
            "a zookeeper:// URL needs the package kazoo, which is not installed:"
            " pip install 'eurekube-provider[zookeeper]'"
        ) from None
    return ZooKeeperConnection.from_settings(known)

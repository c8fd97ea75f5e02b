"""Values of options: what people may write, and how it is shown again.

A raw value is text (flag, environment, YAML scalar) or a YAML list or mapping whose leaves are text. A parser returns
the typed value or raises ``ValueError`` with a text that says what would have been right.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar
from urllib.parse import SplitResult, urlsplit

from kproxy.proxy.applications import CommitRule
from kproxy.proxy.coordinator_rules import Home, HomeRule
from kproxy.proxy.permits import PermitRule
from kproxy.proxy.principals import MappingRule, parse_mapping_rules
from kproxy.proxy.routing import Address

_Value = TypeVar("_Value")
Raw = str | list[Any] | dict[str, Any]
Auto: TypeAlias = Literal["auto"]
AUTO: Final[Auto] = "auto"

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""Kafka's compression types; the index is the code in a batch's attributes."""

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"

_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_PORT_LIMIT = 65535
_PERMITS = "must be TRANSACTIONAL_ID=CLIENT_ID rules, such as orders-*=order-service*"
_EMPTY = '""'
"""A pattern for clients without a client.id."""
#: RFC 7628, 3.1.
_PAIRS = "must be NAME=VALUE pairs, such as logicalCluster=lkc-1; names are of letters, and none is auth"


class DeliverRule(NamedTuple):
    """For consumers whose client.id matches the glob pattern: codec code as stored -> code to deliver instead."""

    client_id: str
    codecs: tuple[tuple[int, int], ...]


class IsolationRule(NamedTuple):
    """The isolation level of consumers whose client.id matches the glob pattern, whatever they request."""

    client_id: str
    level: str


class LogLevelRule(NamedTuple):
    """What is logged of one subsystem, at least."""

    subsystem: str
    level: str


class PrincipalList(tuple[str, ...]):
    """Kafka's principals (``User:alice``), joined by semicolons, since names of certificates have commas."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Kind(Generic[_Value]):
    """A kind of value: how the documentation calls it, its parser, its place holder in help, its unit or nothing."""

    label: str
    parse: Callable[[Raw], _Value]
    metavar: str
    unit: str = ""
    #: A wrong value is not shown: it may be a secret in the wrong place.
    secret: bool = False


def suggest(word: str, valid: tuple[str, ...] | list[str]) -> str:
    """``"; did you mean 'x'?"`` for the closest valid word, or the empty string."""
    close = get_close_matches(word, valid, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _text(raw: Raw) -> str:
    if not isinstance(raw, str):
        raise ValueError("must be a single value, not a list or a mapping")
    return raw.strip()


_SECONDS = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86_400}
#: By the unit of an option the units that may be written, and how many of the option's own each is.
UNITS: dict[str, dict[str, int]] = {
    "ms": {name: round(1000 * seconds) for name, seconds in _SECONDS.items()},
    "s": {name: int(seconds) for name, seconds in _SECONDS.items() if seconds >= 1},
    "bytes": {"B": 1, "kB": 1000, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30},
}


def optional(label: str, parse: Callable[[str], _Value], metavar: str, *, secret: bool = False) -> Kind[_Value | None]:
    """A value that may be off: empty, off, none or false; ``parse`` takes any other text."""

    def parse_unless_off(raw: Raw) -> _Value | None:
        text = _text(raw)
        return None if text.lower() in ("", "off", "none", "false") else parse(text)

    return Kind(label, parse_unless_off, metavar, secret=secret)


def split_url(text: str, wanted: str) -> SplitResult:
    """The parts of a URL without a user name. ValueError with the text ``wanted``."""
    try:
        url = urlsplit(text)
        usable = (url.port or 1) and url.username is None and text.isprintable()
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(wanted)
    return url


def words(raw: Raw, wanted: str, joint: str = ",") -> list[str]:
    """Words joined by ``joint``, or a list of them; nothing for none. ValueError with the text ``wanted``."""
    if isinstance(raw, str):
        raw = [] if _is_none(raw) else raw.split(joint)
    if not isinstance(raw, list) or not all(isinstance(word, str) for word in raw):
        raise ValueError(wanted)
    return [word.strip() for word in raw if word.strip()]


def _is_none(raw: Raw) -> bool:
    return isinstance(raw, str) and raw.strip() in ("", "{}")


def rule_list(label: str, of_what: str, wanted: str, rule: Callable[[str, Any], _Value]) -> Kind[tuple[_Value, ...]]:
    """``PATTERN=WORD,PATTERN=WORD``, or a mapping of the same; nothing for none. ``of_what`` the patterns are.

    ``rule`` makes a rule of a pattern and its word. ``wanted`` is the text of the ValueError for anything else.
    """

    def parse(raw: Raw) -> tuple[_Value, ...]:
        return () if _is_none(raw) else tuple(rule(*pair) for pair in _pairs(raw, of_what, wanted))

    return Kind(label, parse, "LIST")


def whole_number(lowest: int, highest: int, unit: str) -> Kind[int]:
    """An integer within bounds, both included; durations and sizes also with a unit, as 10s or 64MiB."""
    units = {name.lower(): factor for name, factor in UNITS.get(unit, {}).items()}
    also = f" of {unit}, or with a unit: {', '.join(UNITS[unit])}" if units else ""

    def parse(raw: Raw) -> int:
        # Bounded digits: int() of a very long text is slow and then refuses with another error.
        found = re.fullmatch(r"(-?[0-9]{1,19})(?: ?([a-z]+))?", _text(raw).lower(), re.ASCII)
        factor = 0 if found is None else units.get(found[2], 0) if found[2] else 1
        if found is not None and factor and lowest <= int(found[1]) * factor <= highest:
            return int(found[1]) * factor
        raise ValueError(f"must be a whole number from {lowest} to {highest}{also}")

    return Kind(f"integer, {lowest} to {highest}", parse, "N", unit)


def automatic(kind: Kind[_Value]) -> Kind[_Value | Auto]:
    """A value of a kind, or ``auto``: kproxy decides by what it knows of each case."""

    def parse(raw: Raw) -> _Value | Auto:
        if isinstance(raw, str) and raw.strip().lower() == AUTO:
            return AUTO
        try:
            return kind.parse(raw)
        except ValueError as error:
            raise ValueError(f"{error}, or auto") from None

    return Kind(f"auto, or {kind.label} {kind.unit}".rstrip(), parse, kind.metavar)


def choice(*valid: str) -> Kind[str]:
    """One of some words, in whatever case it is written."""
    words = {word.lower(): word for word in valid}

    def parse(raw: Raw) -> str:
        text = _text(raw).lower()
        if text not in words:
            raise ValueError(f"must be one of {', '.join(valid)}{suggest(text, list(words))}")
        return words[text]

    return Kind(f"one of {', '.join(valid)}", parse, "|".join(valid))


def pattern(regex: str, label: str) -> Kind[str]:
    """Text that matches a regular expression as a whole; ``label`` says in words what that is."""

    def parse(raw: Raw) -> str:
        text = _text(raw)
        if not re.fullmatch(regex, text):
            raise ValueError(f"must be {label}")
        return text

    return Kind(label, parse, "NAME")


def _parse_boolean(raw: Raw) -> bool:
    text = _text(raw).lower()
    if text in ("true", "yes", "on"):
        return True
    if text in ("false", "no", "off"):
        return False
    raise ValueError("must be true or false")


def _check_host(host: str) -> None:
    if ":" in host:
        ipaddress.IPv6Address(host)
    elif re.fullmatch(r"[0-9.]+", host):
        ipaddress.IPv4Address(host)
    elif not _HOST_NAME.fullmatch(host):
        raise ValueError


def parse_address(raw: Raw, lowest_port: int = 1) -> Address:
    """``host:port``, ``1.2.3.4:port`` or ``[::1]:port``."""
    text = _text(raw)
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII):
        raise ValueError("must be HOST:PORT")
    if not lowest_port <= int(port) <= _PORT_LIMIT:
        raise ValueError(f"the port must be a number from {lowest_port} to {_PORT_LIMIT}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if ":" not in host:
            raise ValueError("brackets are for IPv6 addresses: must be HOST:PORT")
    elif ":" in host:
        hint = "HOST:PORT without a scheme" if "//" in host else "HOST:PORT, an IPv6 address in brackets: [::1]:9092"
        raise ValueError(f"must be {hint}")
    try:
        _check_host(host)
    except ValueError:
        raise ValueError(f"{host!r} is neither a host name nor an IP address: must be HOST:PORT") from None
    return Address(host, int(port))


def parse_listen_address(raw: Raw) -> Address:
    """An address to listen on: as ``parse_address``, with port 0 for any, or ``:PORT`` for all of IPv4 and IPv6."""
    text = _text(raw)
    if not text.startswith(":") or text.startswith("::"):
        return parse_address(raw, lowest_port=0)
    address = parse_address(f"0.0.0.0{text}", lowest_port=0)
    if not address.port:
        raise ValueError("port 0 needs a host: IPv4 and IPv6 would have different ports")
    return Address("", address.port)


def _parse_path(text: str) -> Path:
    if not text.startswith("/") or "\0" in text:
        raise ValueError("must be an absolute path, or off")
    return Path(text)


def _parse_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be text on one line")
    return text


def _parse_token_url(text: str) -> str:
    wanted = "must be https://HOST/PATH; http:// for a loopback address only, since a secret is sent; or off"
    url = split_url(text, wanted)
    local = url.scheme == "http" and Address(url.hostname or "", 0).is_loopback
    if not url.hostname or not (url.scheme == "https" or local):
        raise ValueError(wanted)
    return text


def _parse_host_pattern(text: str) -> str:
    name = text.replace("{id}", "0", 1)
    if "{id}" not in text or not _HOST_NAME.fullmatch(name):
        raise ValueError("must be a host name with {id} in it, such as broker-{id}.kafka.example.com, or off")
    return text.lower()


def _parse_reachable_address(raw: Raw) -> Address:
    address = parse_address(raw)
    if address.is_wildcard:
        raise ValueError("clients cannot connect to a wildcard address; give the host name or IP that they reach")
    return address


def _parse_addresses(raw: Raw) -> tuple[Address, ...]:
    items = raw if isinstance(raw, list) else _text(raw).split(",")
    addresses = []
    for item in items:
        try:
            addresses.append(parse_address(item))
        except ValueError as error:
            raise ValueError(f"{error} (at {str(item).strip()!r})" if len(items) > 1 else str(error)) from None
    if not addresses:
        raise ValueError("must be one or more HOST:PORT, separated by commas")
    return tuple(dict.fromkeys(addresses))


def _parse_ports(raw: Raw) -> range:
    match = re.fullmatch(r"([0-9]{1,5})\s*-\s*([0-9]{1,5})", _text(raw), re.ASCII)
    if match:
        first, last = int(match[1]), int(match[2])
        if 1 <= first <= last <= _PORT_LIMIT:
            return range(first, last + 1)
    raise ValueError(f"must be FIRST-LAST, two ports from 1 to {_PORT_LIMIT} in rising order, such as 19093-19192")


def _codec(word: Any, *, stored: bool) -> int:
    valid = CODECS[1:] if stored else CODECS
    if not isinstance(word, str) or word not in valid:
        raise ValueError(f"codec {word!r} must be one of {', '.join(valid)}{suggest(str(word), valid)}")
    return CODECS.index(word)


def _parse_deliver_rules(raw: Raw) -> tuple[DeliverRule, ...]:
    wanted = 'must map a client.id pattern to {stored codec: codec to deliver}, such as {"old-*": {lz4: gzip}}'
    if isinstance(raw, str):
        import yaml  # takes long, and few give such rules

        try:
            raw = yaml.load(raw, Loader=yaml.BaseLoader) or {}
        except yaml.YAMLError:
            raise ValueError(wanted) from None
    if not isinstance(raw, Mapping):
        raise ValueError(wanted)
    rules = []
    for client_id, codecs in raw.items():
        if not isinstance(client_id, str) or not isinstance(codecs, Mapping):
            raise ValueError(wanted)
        pairs = tuple((_codec(old, stored=True), _codec(new, stored=False)) for old, new in codecs.items())
        rules.append(DeliverRule(client_id, pairs))
    return tuple(rules)


def _home(word: Any) -> Home:
    valid = tuple(home.value for home in Home)
    if not isinstance(word, str) or word.strip().lower() not in valid:
        raise ValueError(f"home {word!r} must be one of {', '.join(valid)}{suggest(str(word), valid)}")
    return Home(word.strip().lower())


def _parse_home_rules(raw: Raw) -> tuple[HomeRule, ...]:
    """One word for all ids, ``PATTERN=HOME,PATTERN=HOME``, or a mapping of the same."""
    if isinstance(raw, str) and "=" not in raw:
        return (HomeRule("*", _home(raw)),)
    wanted = "must be auto, broker, broker-fenced, kproxy or PATTERN=HOME rules, such as orders-*=kproxy,*=broker"
    return tuple(HomeRule(id_pattern, _home(home)) for id_pattern, home in _pairs(raw, "transactional ids", wanted))


def _permit_rule(id_pattern: str, client_id: Any) -> PermitRule:
    if not isinstance(client_id, str) or not client_id.strip():
        raise ValueError(_PERMITS)
    return PermitRule(id_pattern, client_id.strip())


def _extension(name: str, value: Any) -> str:
    if not re.fullmatch("(?!auth$)[A-Za-z]+", name) or not str(value).isprintable():
        raise ValueError(_PAIRS)
    return f"{name}={str(value).strip()}"


def _parse_patterns(raw: Raw) -> tuple[str, ...]:
    found = words(raw, "must be a list of patterns, such as 127.0.0.1,10.0.*")
    return tuple("" if word == _EMPTY else word for word in found)


def _parse_principals(raw: Raw) -> PrincipalList:
    names = words(raw, "must be a list of principals, such as User:admin;User:CN=ops,O=Example", ";")
    for name in names:
        if ":" not in name:
            raise ValueError(f"{name!r} must be TYPE:NAME, such as User:{name}")
    return PrincipalList(names)


def _parse_commit_rules(raw: Raw) -> tuple[CommitRule, ...]:
    """``PRODUCER``, ``PRODUCER=group:GROUP`` or ``PRODUCER=client:CONSUMER`` rules, or a mapping; nothing for none."""
    if _is_none(raw):
        return ()
    wanted = "must be rules such as etl-*, loader=group:loaders or loader-out=client:loader-in"
    pairs: list[tuple[Any, Any]] = []
    if isinstance(raw, str):
        pairs = [(producer, consumer) for producer, _, consumer in (rule.partition("=") for rule in raw.split(","))]
    elif isinstance(raw, Mapping):
        pairs = list(raw.items())
    rules = [_commit_rule(producer, consumer) for producer, consumer in pairs if isinstance(consumer, str)]
    if len(rules) < len(pairs) or None in rules or (not rules and raw):
        raise ValueError(wanted)
    return tuple(rule for rule in rules if rule is not None)


def _commit_rule(producer: str, consumer: str) -> CommitRule | None:
    kind, _, of = (part.strip() for part in consumer.partition(":"))
    if not producer.strip() or kind not in ("", "group", "client") or bool(kind) is not bool(of):
        return None
    return CommitRule(producer.strip(), of if kind == "group" else None, of if kind == "client" else None)


def _parse_mapping_rules(raw: Raw) -> tuple[MappingRule, ...]:
    """Text as in Kafka's properties, or a list of rules."""
    if isinstance(raw, list) and all(isinstance(rule, str) for rule in raw):
        raw = ",".join(raw)
    return parse_mapping_rules(_text(raw))


def _pairs(raw: Raw, of_what: str, wanted: str) -> list[tuple[str, Any]]:
    if isinstance(raw, str):
        pairs = [(pattern.strip(), word) for pattern, _, word in (item.rpartition("=") for item in raw.split(","))]
    elif isinstance(raw, Mapping):
        pairs = list(raw.items())
    else:
        raise ValueError(wanted)
    for id_pattern, _ in pairs:
        if not id_pattern or "," in id_pattern:
            raise ValueError(f"a pattern of {of_what} must not be empty or hold a comma; ? matches any letter")
    return pairs


BOOLEAN = Kind("true or false", _parse_boolean, "true|false")
LISTEN_ADDRESS = Kind(
    "HOST:PORT, or :PORT for all addresses; port 0 takes any free one", parse_listen_address, "HOST:PORT"
)
OPTIONAL_LISTEN_ADDRESS = optional("HOST:PORT, :PORT for all addresses, or off", parse_listen_address, "HOST:PORT")
HOST_PATTERN = optional("host name with {id}, or off", _parse_host_pattern, "NAME")
OPTIONAL_PATH = optional("absolute path or off", _parse_path, "PATH")
OPTIONAL_TEXT = optional("text or off", _parse_line, "TEXT")
TOKEN_URL = optional("https URL or off", _parse_token_url, "URL")
EXTENSIONS = rule_list("list of NAME=VALUE", "names", _PAIRS, _extension)
REACHABLE_ADDRESS: Kind[Address | None] = Kind("HOST:PORT", _parse_reachable_address, "HOST:PORT")
ADDRESSES = Kind("list of HOST:PORT", _parse_addresses, "LIST")
PORTS: Kind[range | None] = Kind("FIRST-LAST", _parse_ports, "FIRST-LAST")
DELIVER_RULES = Kind("client.id pattern: {codec: codec}", _parse_deliver_rules, "MAP")
ISOLATION_LEVEL = choice(READ_COMMITTED, READ_UNCOMMITTED)
ISOLATION_RULES = rule_list(
    "list of client.id PATTERN=LEVEL",
    "client ids",
    "must be PATTERN=LEVEL rules, such as dashboard-*=read_uncommitted",
    lambda client_id, level: IsolationRule(client_id, ISOLATION_LEVEL.parse(level)),
)
COMMIT_RULES = Kind("list of client.id PATTERN[=group:PATTERN or =client:PATTERN]", _parse_commit_rules, "LIST")
PERMIT_RULES = rule_list("list of TRANSACTIONAL_ID=CLIENT_ID patterns", "transactional ids", _PERMITS, _permit_rule)
MAPPING_RULES = Kind("list of RULE:PATTERN/REPLACEMENT/CASE or DEFAULT", _parse_mapping_rules, "LIST")
PATTERNS = Kind("list of patterns", _parse_patterns, "LIST")
PRINCIPALS: Kind[PrincipalList] = Kind("list of principals, joined by semicolons", _parse_principals, "LIST")
HOME_RULES = Kind("auto, broker, broker-fenced, kproxy, or list of PATTERN=HOME", _parse_home_rules, "HOME")


def show(value: object) -> str:
    """A typed value as it would be written on the command line."""
    match value:
        case None:
            return "off"
        case bool():
            return str(value).lower()
        case range():
            return f"{value[0]}-{value[-1]}"
        case Address():
            return str(value)
        case PrincipalList():
            return ";".join(value) or "{}"
        case tuple():
            return _show_list(value) or "{}"
    return str(value)


def _show_list(value: tuple[object, ...]) -> str:
    match value:
        case [DeliverRule(), *_]:
            return f"{{{', '.join(_show_rule(rule) for rule in value if isinstance(rule, DeliverRule))}}}"
        case [CommitRule(), *_]:
            return ",".join(_show_commit_rule(rule) for rule in value if isinstance(rule, CommitRule))
        case [IsolationRule() | PermitRule() | LogLevelRule(), *_]:
            return ",".join("=".join(rule) for rule in value if isinstance(rule, tuple))
        case [MappingRule(), *_]:
            return ",".join(rule.text for rule in value if isinstance(rule, MappingRule))
        case [HomeRule("*", home)]:
            return home.value
        case [HomeRule(), *_]:
            return ",".join(
                f"{rule.transactional_id}={rule.home.value}" for rule in value if isinstance(rule, HomeRule)
            )
    return ",".join(str(item) or _EMPTY for item in value)


def _show_commit_rule(rule: CommitRule) -> str:
    consumer = f"=group:{rule.group}" if rule.group is not None else ""
    return rule.producer + (f"=client:{rule.consumer}" if rule.consumer is not None else consumer)


def _show_rule(rule: DeliverRule) -> str:
    return f'"{rule.client_id}": {{{", ".join(f"{CODECS[old]}: {CODECS[new]}" for old, new in rule.codecs)}}}'

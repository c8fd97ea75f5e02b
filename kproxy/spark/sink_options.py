"""Options of the sink: what may be said, and what exactly-once depends on and so may not."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from ssl import SSLError
from types import MappingProxyType
from typing import Final

from kproxy.client import DEFAULT_SOCKET, ControlClient
from kproxy.config.values import CODECS, suggest
from kproxy.spark.kafka_cluster import KafkaCluster
from kproxy.spark.option_table import SINK, SINK_NO_EFFECT, SINK_REFUSED
from kproxy.spark.option_values import boolean, choice, number, servers
from kproxy.spark.record_encoding import USUAL, Packing
from kproxy.spark.security_options import NAMES as SECURITY
from kproxy.spark.security_options import PLAIN_TEXT, Security, security
from kproxy.spark.spark_errors import OptionError

BOOTSTRAP: Final = "kafka.bootstrap.servers"
CREATES_TOPICS: Final = "kafka.allow.auto.create.topics"
#: As long as ``transaction.max.timeout.ms`` lets a transaction be, unless kproxy is configured otherwise.
DEFAULT_TIMEOUT_MS: Final = 900_000
#: A kproxy that is started again, and a broker that comes back, are waited for.
DEFAULT_RETRY_MS: Final = 120_000

_CONTROL_CA: Final = "kproxy.control.ssl.ca.location"
_DAY_MS: Final = 86_400_000
_TAKEN: Final = frozenset(name.lower() for option in (*SINK, *SINK_NO_EFFECT) for name in option.names)
_KNOWN: Final = (*_TAKEN, *SECURITY, "checkpointlocation", "queryname")
_OWN: Final = "the sink sets it, for exactly-once depends on it: leave it out"
_NOT_THE_USERS: Final[Mapping[str, str]] = MappingProxyType(
    {name: f"{option.text}: leave it out" for option in SINK_REFUSED for name in option.names}
    | {
        "kafka.acks": f"{_OWN}, or say all",
        "kafka.enable.idempotence": f"{_OWN}, or say true",
        "kafka.transactional.id": "write transactional.id, without kafka.",
        "kafka.transaction.timeout.ms": "write transaction.timeout.ms, without kafka.",
    }
)
#: What the sink does anyway may be said.
_SAME_AS_OURS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"kafka.acks": ("all", "-1"), "kafka.enable.idempotence": ("true",)}
)

_COMPRESSION: Final = "kafka.compression.type"
_MOST_LEVELS: Final[Mapping[str, int]] = MappingProxyType({"gzip": 9, "zstd": 22})
_BATCH_SIZE: Final = "kafka.batch.size"
_REQUEST_SIZE: Final = "kafka.max.request.size"
#: Of Kafka's producer.
_REQUEST_BYTES: Final = 1_048_576
_MOST_REQUEST_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """Where kproxy's control API is, as driver and tasks reach it: by URL, or by socket."""

    url: str | None
    socket: str
    token_file: str | None
    ca_file: str | None = None

    def client(self) -> ControlClient:
        """A client for it. OptionError if it can't be made."""
        try:
            return ControlClient(self.socket, url=self.url, token_file=self.token_file, ca_file=self.ca_file)
        except SSLError:
            raise OptionError(f"kproxy.control.ssl.ca.location: {self.ca_file!r} holds no PEM certificates") from None
        except OSError as error:
            which = "kproxy.control.token.file or kproxy.control.ssl.ca.location"
            raise OptionError(f"{which} can't be read: {error} (at this node)") from None
        except ValueError as error:
            raise OptionError(f"kproxy.control.url: {error}") from None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What the user asked for, checked."""

    bootstrap: str
    control: ControlAddress
    transactional_id: str
    #: For rows of all topics; None: the column says.
    topic: str | None
    timeout_ms: int
    #: For so long kproxy is asked again while it does not answer.
    retry_ms: int
    #: Under which a batch write is committed once; None: each is one of its own.
    batch_id: str | None
    #: As the options say them; empty if they do not.
    checkpoint: str
    query_name: str
    packing: Packing = USUAL
    #: Of one request, and of one record.
    request_bytes: int = _REQUEST_BYTES
    #: Whether the broker may create a topic that does not exist.
    creates_topics: bool = False
    security: Security = PLAIN_TEXT

    def open_cluster(self, client_id: str, *, longest_request_ms: int | None = None) -> KafkaCluster:
        """The cluster at ``kafka.bootstrap.servers``, asked for as long as kproxy is waited for; to be closed.

        ``longest_request_ms``: how long a response is waited for; None: as long.
        """
        patience = self.retry_ms / 1000
        return KafkaCluster(
            servers(BOOTSTRAP, self.bootstrap),
            client_id=client_id,
            request_timeout_s=(longest_request_ms or self.retry_ms) / 1000,
            patience_s=patience,
            security=self.security,
        )


def parse(options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Checks the options, whose names are in lower case. OptionError names the first that is wrong."""
    given = {name.lower(): value for name, value in options.items()}
    _check_names(given)
    if is_stream and "batch.id" in given:
        raise OptionError("batch.id: is for df.write; a stream has the numbers of its batches")
    return SinkOptions(
        bootstrap=_bootstrap(given),
        control=_control(given),
        transactional_id=_transactional_id(given, is_stream=is_stream),
        topic=_optional(given, "topic"),
        timeout_ms=_milliseconds(given, "transaction.timeout.ms", DEFAULT_TIMEOUT_MS),
        retry_ms=_milliseconds(given, "kproxy.retry.timeout.ms", DEFAULT_RETRY_MS),
        batch_id=_optional(given, "batch.id"),
        checkpoint=given.get("checkpointlocation", ""),
        query_name=given.get("queryname", ""),
        packing=_packing(given),
        request_bytes=_size(given, _REQUEST_SIZE, _REQUEST_BYTES),
        creates_topics=boolean(given, CREATES_TOPICS, default=False),
        security=security(given),
    )


def _check_names(given: Mapping[str, str]) -> None:
    for name, value in given.items():
        if name in _KNOWN or value.strip().lower() in _SAME_AS_OURS.get(name, ()):
            continue
        if name in _NOT_THE_USERS:
            raise OptionError(f"{name}: {_NOT_THE_USERS[name]}")
        raise OptionError(f"{name}: no option of the sink{suggest(name, _KNOWN)}")


def _packing(given: Mapping[str, str]) -> Packing:
    codec = choice(given, _COMPRESSION, CODECS, CODECS[0])
    levels = {
        name: number(given, f"kafka.compression.{name}.level", None, most=most) for name, most in _MOST_LEVELS.items()
    }
    return Packing(CODECS.index(codec), levels.get(codec), _size(given, _BATCH_SIZE, USUAL.batch_bytes))


def _size(given: Mapping[str, str], name: str, default: int) -> int:
    found = number(given, name, default, most=_MOST_REQUEST_BYTES)
    assert found is not None
    return found


def _transactional_id(given: Mapping[str, str], *, is_stream: bool) -> str:
    named = _optional(given, "transactional.id")
    if named is not None:
        return named
    checkpoint = given.get("checkpointlocation", "")
    if is_stream and checkpoint:
        return derived_id(checkpoint)
    way_out = "or checkpointLocation as an option of the query" if is_stream else "the same for each run of the job"
    raise OptionError(f"transactional.id: is needed, a name for all that this job writes, {way_out}")


def derived_id(checkpoint: str) -> str:
    """The transactional id of a query that names none: one for each checkpoint location, as long as it stays there."""
    path = checkpoint.removeprefix("file://").removeprefix("file:").rstrip("/")
    return f"spark-{hashlib.sha256(path.encode()).hexdigest()[:20]}"


def stream_batch_id(query_id: str, batch: str | int) -> str:
    """Of a micro-batch: a new checkpoint numbers its batches from 0, and its query has a new id."""
    return f"{query_id}/{batch}"


def _control(given: Mapping[str, str]) -> ControlAddress:
    url, socket = _optional(given, "kproxy.control.url"), _optional(given, "kproxy.control.socket")
    token_file, ca = _optional(given, "kproxy.control.token.file"), _optional(given, _CONTROL_CA)
    if url is not None and socket is not None:
        raise OptionError("kproxy.control.url: give it or kproxy.control.socket, not both")
    if url is not None and token_file is None:
        raise OptionError("kproxy.control.token.file: is needed with kproxy.control.url, a file on each node")
    if ca is not None and not (url or "").startswith("https:"):
        raise OptionError(f"{_CONTROL_CA}: has no effect unless kproxy.control.url is https://HOST:PORT")
    return ControlAddress(url, socket or DEFAULT_SOCKET, token_file, ca)


def _bootstrap(given: Mapping[str, str]) -> str:
    found = _optional(given, BOOTSTRAP)
    if found is None or not servers(BOOTSTRAP, found):
        raise OptionError(f"{BOOTSTRAP}: is needed, HOST:PORT of a kproxy, several joined by commas")
    return found


def _optional(given: Mapping[str, str], name: str) -> str | None:
    if name not in given:
        return None
    value = given[name].strip()
    if not value:
        raise OptionError(f"{name}: must not be empty")
    return value


def _milliseconds(given: Mapping[str, str], name: str, default: int) -> int:
    value = given.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) < 10 and 1 <= int(value) <= _DAY_MS):
        raise OptionError(f"{name}: {value!r} must be a whole number of milliseconds from 1 to {_DAY_MS}")
    return int(value)

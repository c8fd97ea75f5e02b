"""The released clients of the interop tests: how each is installed, set up, and what it can express."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from tests.support.clients import Command, go_driver, java_driver, node_driver, python_driver

ALL_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
OLD_CODECS: Final = ("none", "gzip", "snappy", "lz4")
GZIP: Final = ("none", "gzip")


@dataclass(frozen=True)
class Abilities:
    """What a client can write (and hand out again): fields of a record that its API or its format knows.

    `null_value` is a record with a key and no value, `empty` one whose key or value has length 0.
    `reads` are the codecs that it reads by itself, `recoded` those that kproxy by default turns into one of them.
    """

    codecs: tuple[str, ...] = ALL_CODECS
    reads: tuple[str, ...] = ALL_CODECS
    recoded: tuple[str, ...] = ("zstd",)
    timestamps: bool = True
    headers: bool = True
    null_headers: bool = True
    null_key: bool = True
    null_value: bool = True
    empty: bool = True
    reads_timestamps: bool = True
    reads_headers: bool = True
    reads_empty: bool = True


Levels: TypeAlias = tuple[dict[str, Any], dict[str, Any]]


def _levels(option: str) -> Levels:
    return {option: "read_uncommitted"}, {option: "read_committed"}


@dataclass(frozen=True)
class Client:
    """One row of the matrix."""

    name: str
    install: Callable[[], Command]
    options: dict[str, Any] = field(default_factory=dict)
    can: Abilities = Abilities()
    idempotent: bool = False
    """Whether its batches carry a producer id of their own, which kproxy leaves alone."""
    on_3_9: bool = True
    """Whether Kafka 3.9.1 serves all that it sends: not offsets in ZooKeeper, not yet KIP-848."""
    refused: bool = False
    """Whether Kafka 4 refuses what it sends, so that it works through kproxy only."""
    isolation: Levels | None = None
    """Settings of a consumer that reads all records, and of one that reads committed ones; None: it has no choice."""
    title: str = ""
    """Library and release, as docs/clients.md names them; by default the name of the row."""
    settings: str = ""
    """What is set beside the address, in Markdown."""
    alone: str = ""
    """What it can do without kproxy; by default all, or nothing if it is refused."""


_FIRST: Final = Abilities(
    codecs=OLD_CODECS, reads=OLD_CODECS, timestamps=False, headers=False, reads_timestamps=False, reads_headers=False
)
"""Magic 0: neither timestamps nor headers."""
_SECOND: Final = Abilities(codecs=OLD_CODECS, reads=OLD_CODECS, headers=False, reads_headers=False)
"""Magic 1: timestamps, no headers."""
_DEFAULTS: Final = "defaults (idempotent)"
_NO_LZ4: Final = ("none", "gzip", "snappy")
_THIRD: Final = Abilities(codecs=OLD_CODECS, reads=OLD_CODECS)
"""Magic 2 before zstd."""


def _java(version: str, can: Abilities, **more: Any) -> Client:
    name = more.pop("name", f"java-{version}")
    coordinate = f"org.apache.kafka:kafka-clients:{version}"
    sources = ["java"]
    if can.headers:
        more["isolation"] = _levels("isolation.level")
        # It has transactions, too: one installation serves all tests.
        sources.append("java011")
    return Client(name, lambda: java_driver(coordinate, *sources), can=can, title=f"Java {version}", **more)


def _java08(offsets: int, producer: str, can: Abilities) -> Client:
    options = {"client": "Simple", "offsets": offsets, "producer_kind": producer, "producer": {"acks": "1"}}
    install = lambda: java_driver("org.apache.kafka:kafka_2.11:0.8.2.2", "java", "java08")  # noqa: E731
    name = f"java-0.8.2.2-{producer}-offsets-v{offsets}"
    kind = "`KafkaProducer`" if producer == "java" else "Scala producer"
    settings = f"{kind}; `SimpleConsumer` with OffsetCommit v{offsets}"
    title = "Java 0.8.2.2"
    return Client(name, install, options, can, on_3_9=offsets > 0, refused=True, title=title, settings=settings)


def _kafka_python(release: str, version: tuple[int, ...] | None, can: Abilities, **more: Any) -> Client:
    extras = ["lz4==4.4.5", "python-snappy==0.7.3", "zstandard==0.25.0", "six==1.17.0"]
    if release.startswith("3"):
        more["isolation"] = _levels("isolation_level")
    pinned = "" if version is None else "-pinned-" + ".".join(map(str, version))
    name = more.pop("name", f"kafka-python-{release}{pinned}")
    options = {"version": list(version) if version else None, **more.pop("options", {})}
    more.setdefault("settings", "" if version is None else f"`api_version` ({','.join(map(str, version))})")
    more["title"] = f"kafka-python {release}"
    return Client(
        name, lambda: python_driver("kafka_python.py", f"kafka-python=={release}", *extras), options, can, **more
    )


def _confluent(release: str, fallback: str | None, can: Abilities, **more: Any) -> Client:
    both: dict[str, Any] = {}
    if fallback is not None:
        both = {"api.version.request": False, "broker.version.fallback": fallback}
    else:
        more["isolation"] = _levels("isolation.level")
    name = more.pop("name", f"librdkafka-{release}" + (f"-fallback-{fallback}" if fallback else ""))
    options = {"producer": {**both, **more.pop("producer", {})}, "consumer": both, **more.pop("options", {})}
    more.setdefault("settings", f"`api.version.request=false`, fallback {fallback}" if fallback else "")
    more["title"] = f"librdkafka {release}"
    return Client(name, lambda: python_driver("confluent.py", f"confluent-kafka=={release}"), options, can, **more)


def _sarama(name: str, modfile: str, version: str, can: Abilities, **more: Any) -> Client:
    tags = ["old"] if modfile == "old.mod" else []
    if can.headers:
        more["isolation"] = _levels("isolation")
    return Client(
        f"{name}-{version}",
        lambda: go_driver(modfile, *tags),
        {"client": "sarama", "version": version},
        can,
        title=name.replace("-", " "),
        settings=f"`Version` {version}",
        **more,
    )


def _go(client: str, release: str, **more: Any) -> Client:
    options = {"client": client, **more.pop("options", {})}
    name = f"{client}-{release}{more.pop('suffix', '')}"
    title = f"{client} {release}"
    return Client(name, lambda: go_driver("go.mod"), options, isolation=_levels("isolation"), title=title, **more)


def _node(client: str, release: str, can: Abilities, **more: Any) -> Client:
    return Client(f"{client}-{release}", node_driver, {"client": client}, can, title=f"{client} {release}", **more)


CLIENTS: Final = (
    _java08(1, "java", _FIRST),
    _java08(0, "scala", _FIRST),
    _java("0.9.0.1", _FIRST, refused=True),
    _java("0.10.2.2", _SECOND, refused=True),
    _java("0.10.0.1", _SECOND, refused=True),
    _java("0.11.0.3", _THIRD),
    _java("1.1.1", _THIRD),
    _java("2.0.1", _THIRD),
    _java(
        "2.0.1",
        _THIRD,
        name="java-2.0.1-idempotent",
        idempotent=True,
        settings="`enable.idempotence`",
        options={"producer": {"enable.idempotence": "true"}},
    ),
    _java("2.8.2", Abilities()),
    *(_java(version, Abilities(), idempotent=True, settings=_DEFAULTS) for version in ("4.3.0", "4.4.0")),
    _java(
        "4.4.0",
        Abilities(),
        name="java-4.4.0-plain",
        on_3_9=False,
        settings="not idempotent, acks 1; `group.protocol=consumer` (KIP-848)",
        options={"producer": {"enable.idempotence": "false", "acks": "1"}, "consumer": {"group.protocol": "consumer"}},
    ),
    _java(
        "4.4.0",
        Abilities(),
        name="java-4.4.0-transactional",
        idempotent=True,
        settings="transactional, read_committed",
        options={"producer": {"transactional.id": "interop-java"}, "consumer": {"isolation.level": "read_committed"}},
    ),
    _kafka_python("1.4.7", (0, 8, 2), _FIRST, refused=True),
    _kafka_python("1.4.7", (0, 9), _FIRST, refused=True),
    _kafka_python("1.4.7", (0, 10), _SECOND, refused=True),
    _kafka_python(
        "1.4.7", (0, 11), replace(_THIRD, null_headers=False, reads_headers=False), refused=True, alone="writes only"
    ),
    _kafka_python("1.4.7", None, replace(_THIRD, null_headers=False)),
    _kafka_python("2.0.2", None, Abilities(null_headers=False)),
    _kafka_python("2.0.2", (0, 10, 1), _SECOND, refused=True),
    _kafka_python("3.0.12", None, Abilities(null_headers=False), idempotent=True, settings=_DEFAULTS),
    _kafka_python(
        "3.0.12",
        None,
        Abilities(null_headers=False),
        name="kafka-python-3.0.12-plain",
        settings="not idempotent, acks 1",
        options={"producer": {"enable_idempotence": False, "acks": 1}},
    ),
    _confluent("2.16.1", "0.8.2.2", _FIRST, options={"assign": True}, refused=True),
    _confluent("2.16.1", "0.9.0.1", _FIRST, refused=True),
    _confluent("2.16.1", None, Abilities()),
    _confluent(
        "2.16.1",
        None,
        Abilities(),
        name="librdkafka-2.16.1-transactional",
        idempotent=True,
        settings="transactional",
        producer={"transactional.id": "interop-librdkafka"},
    ),
    _confluent("2.0.2", "0.9.0.1", _FIRST, refused=True),
    _confluent("2.0.2", None, Abilities()),
    Client(
        "aiokafka-0.8.1-pinned-0.9",
        lambda: python_driver(
            "aiokafka_driver.py", "aiokafka==0.8.1", "kafka-python==2.0.2", "lz4==4.4.5", "python-snappy==0.7.3"
        ),
        {"producer": {"api_version": "0.9"}, "consumer": {"api_version": "0.9"}},
        _FIRST,
        refused=True,
        title="aiokafka 0.8.1",
        settings="`api_version` 0.9",
    ),
    Client(
        "aiokafka-0.14.0",
        lambda: python_driver("aiokafka_driver.py", "aiokafka==0.14.0", "cramjam==2.11.0"),
        isolation=_levels("isolation_level"),
        title="aiokafka 0.14.0",
    ),
    Client(
        "pykafka-2.8.0-0.9",
        lambda: python_driver("pykafka_driver.py", "pykafka==2.8.0", "python-snappy==0.7.3", "setuptools==80.9.0"),
        can=replace(_FIRST, codecs=_NO_LZ4, reads=_NO_LZ4),
        refused=True,
        title="pykafka 2.8.0",
        settings="`broker_version` 0.9.0",
    ),
    _sarama("sarama-1.19.0", "old.mod", "0.8.2.2", replace(_FIRST, codecs=_NO_LZ4, reads=_NO_LZ4), refused=True),
    _sarama("sarama-1.19.0", "old.mod", "0.10.2.1", _SECOND, refused=True),
    _sarama("sarama-1.61.1", "go.mod", "0.10.2.2", _SECOND, refused=True),
    _sarama("sarama-1.61.1", "go.mod", "2.8.1", Abilities()),
    _go("kafka-go", "0.4.51", can=Abilities(reads_empty=False)),
    _go("franz-go", "1.22.2", idempotent=True, options={"producer": {"idempotent": "true"}}, settings=_DEFAULTS),
    _go("franz-go", "1.22.2", suffix="-plain", settings="`DisableIdempotentWrite`"),
    _node(
        "kafkajs",
        "2.2.4",
        Abilities(codecs=_NO_LZ4, reads=_NO_LZ4, recoded=(), null_headers=False),
        isolation=({"readUncommitted": True}, {"readUncommitted": False}),
        settings="with kafkajs-snappy",
    ),
    _node(
        "kafka-node",
        "5.0.0",
        Abilities(codecs=GZIP, reads=GZIP, recoded=("lz4", "zstd"), headers=False, reads_headers=False),
        refused=True,
        settings="without the native snappy module",
    ),
    _node(
        "no-kafka",
        "3.4.3",
        Abilities(
            codecs=GZIP,
            reads=GZIP,
            recoded=("snappy", "lz4", "zstd"),
            timestamps=False,
            headers=False,
            reads_timestamps=False,
            reads_headers=False,
        ),
        refused=True,
        settings="without the native snappy module",
    ),
)

NEWEST: Final = next(client for client in CLIENTS if client.name == "librdkafka-2.16.1")
"""Writes what all others read, and reads what all others wrote."""

"""What a handler of one API key is: two pure functions, one towards the broker and one towards the client."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kproxy.codec.messages import Message
from kproxy.proxy.routing import Address, ClusterMap, VersionRange


@dataclass(slots=True)
class Context:
    """What a handler may know of the connection on which a request came."""

    cluster: ClusterMap
    #: The address at which the client reached kproxy, told on when no other is configured.
    local_host: str
    max_decompressed_bytes: int
    #: Bytes of records to ask for on behalf of a client whose version can't say so itself.
    fetch_max_bytes: int
    #: By compression type, the one to deliver instead, for this client (codes of Kafka's ``CompressionType``).
    transcode: Mapping[int, int]
    client_id: str = ""
    #: What the broker of this connection serves, by API key.
    broker_versions: Mapping[int, VersionRange] = field(default_factory=dict)
    #: A batch in zstd was met, which Fetch below v10 can't carry: from now on fetch newer and re-encode.
    reencode_fetches: bool = False
    #: Records and batches converted for this client so far: {(direction, magic): (batches, records)}.
    converted: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    #: Where nothing can be delivered to an old consumer: {(topic, partition): (its offset, the next with records)}.
    hidden: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def advertised(self, node_id: int) -> Address | None:
        """The address to tell this client for a broker."""
        return self.cluster.advertised(node_id, self.local_host)

    def count_converted(self, direction: str, magic: int, batches: int, records: int) -> None:
        """Adds to the conversion counters; direction is ``up`` (to the broker) or ``down``."""
        had = self.converted.get((direction, magic), (0, 0))
        self.converted[direction, magic] = had[0] + batches, had[1] + records


@dataclass(slots=True)
class Exchange:
    """One request on its way: as the client sent it, the versions on both sides, and what the handler notes."""

    request: Any
    client_version: int
    upstream_version: int
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Again:
    """The answer is not enough yet: ask the broker this, too, at ``version`` (None: as before)."""

    request: Message
    version: int | None = None


@dataclass(slots=True)
class Local:
    """Nothing to ask: this is the answer."""

    answer: Message


class AsItIs:
    """The answer of the broker is the client's, to the byte."""


class Handler:
    """Lift and lower by the codec alone: right for each API whose fields only grew."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Whether answers (or requests) must be decoded though both sides speak the same version."""
        return upstream != version

    def ask_version(self, ctx: Context, version: int, upstream: int) -> int:
        """The version for the broker, given the one that ``upstream_version`` chose."""
        return upstream

    def lift(self, ctx: Context, exchange: Exchange) -> Message | Local:
        """What to ask the broker."""
        request: Message = exchange.request
        return request

    def brokers_in(self, response: Any) -> Iterable[tuple[int, str, int]]:
        """The brokers (node id, host, port) that an answer names: each needs an address of kproxy's first."""
        return ()

    def lower(self, ctx: Context, exchange: Exchange, response: Any) -> Message | Again | AsItIs:
        """What to answer the client, or what else to ask."""
        answer: Message = response
        return answer

"""What is known on a connection: its client, what is configured, what all connections share, and what changes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kproxy.budget import MOST_ELEMENTS, Share
from kproxy.codec._generated.api_versions import ApiVersionsResponse
from kproxy.codec.conversion_memo import ConversionMemo
from kproxy.codec.topic_partition import TopicPartition
from kproxy.codec.version_choice import VersionRange
from kproxy.dedup.identity import Identity, counted_host
from kproxy.dedup.kept.clients import KeptClients
from kproxy.dedup.losses import KnownEnds
from kproxy.proxy.applications import Applications
from kproxy.proxy.coordinator_rules import HomeRule, any_kproxys, is_kproxys
from kproxy.proxy.implicit_produce import ImplicitTransactionFinder
from kproxy.proxy.memberships import Memberships
from kproxy.proxy.permits import Permits
from kproxy.proxy.principals import ANONYMOUS
from kproxy.proxy.routing import Address, ClusterMap, is_own_name
from kproxy.txn.ids import Producer
from kproxy.txn.last_stable import LastStable
from kproxy.txn.requests import IdHolder
from kproxy.txn.verdict import Decisions
from kproxy.txn.views import Views

if TYPE_CHECKING:
    from kproxy.proxy.authorization.access import Access
    from kproxy.proxy.quotas.meter import Meter


class Fault(NamedTuple):
    """The last error of a client: a word or two, and when (seconds since the epoch)."""

    reason: str
    at: float


class Passed(NamedTuple):
    """An offset at which nothing can be delivered to a consumer, and the transaction that prevents it."""

    start: int
    #: The next offset at which there may be something to deliver.
    next_offset: int
    undecided: Producer | None
    #: The isolation level for which this holds.
    level: int = 0
    #: Where the log ended then.
    high_watermark: int = -1


def _as_asked(client_id: str) -> None:
    """No client has an isolation level of its own."""


def _as_it_is(client_id: str) -> Mapping[int, int]:
    """No client receives another compression."""
    return {}


@dataclass(frozen=True, slots=True)
class Client:
    """A client's connection; replaced when more becomes known of it."""

    #: The serial number of the connection, rising.
    connection: int = 0
    #: The address from which the client connects.
    host: str = ""
    #: The address at which it reached kproxy: the one to advertise where no other is configured.
    local_host: str = ""
    client_id: str = ""
    #: Who the client is, in Kafka's form; final when the first request is taken.
    principal: str = ANONYMOUS
    #: What ApiVersions v3 and later called the client's software (KIP-511).
    software: str = ""
    software_version: str = ""
    #: The version of its last ApiVersions request; -1 if it has sent none.
    api_versions: int = -1

    @property
    def identity(self) -> Identity:
        """The client across its connections: its consumer and its producer have one each."""
        return Identity(self.principal, self.client_id, self.host)


@dataclass(frozen=True, slots=True)
class Policy:
    """What is configured, one for all connections (docs/configuration.md has the options)."""

    #: Produce requests of a partition in flight, and bytes of a batch that is built.
    max_in_flight: int = 5
    max_batch_bytes: int = 1 << 20
    max_decompressed_bytes: int = 1 << 20
    #: Bytes of requests that a connection may hold until they are answered.
    held_bytes: int = 1 << 20
    idempotence: bool = True
    #: Whether clients without a login are distinguished by their addresses, too (identity.by).
    by_address: bool = True
    #: Bytes of records to ask for on behalf of a client whose version can't say so itself.
    fetch_max_bytes: int = 1 << 20
    #: By client id, then by compression type, the one to deliver instead (codes of Kafka's ``CompressionType``).
    transcode: Callable[[str], Mapping[int, int]] = _as_it_is
    #: Array elements that one request may have, other than Produce.
    max_request_elements: int = 20_000
    #: Those that one response of a broker may have.
    max_response_elements: int = MOST_ELEMENTS
    #: Whether SASL of the client goes through to the broker.
    passes_sasl: bool = True
    #: Whether clients log in at kproxy, not at the broker.
    logs_in_here: bool = False
    #: Whether clients whose requests have no isolation level read committed data only.
    legacy_committed: bool = True
    #: By client id whether it reads committed data only, whatever it asks for; None: as it asks.
    committed_for: Callable[[str], bool | None] = _as_asked
    #: The transactional ids whose transactions kproxy decides; None: none.
    homes: Sequence[HomeRule] | None = None


@dataclass(frozen=True, slots=True)
class Services:
    """What the connections of a process share."""

    cluster: ClusterMap
    #: What kproxy's transaction log says; None if it is not read.
    decisions: Decisions | None = None
    #: The last stable offsets that are reported.
    stable: LastStable = field(default_factory=LastStable)
    #: Whether the transaction log may hold offsets of groups.
    follows_groups: bool = False
    #: The transactions of all ids; None if the log is not read.
    views: Views | None = None
    #: The clients whose Produce requests go into transactions that they know nothing of; None: none.
    implicit_transactions: ImplicitTransactionFinder | None = None
    #: The clients whose OffsetCommits end transactions; None: none.
    applications: Applications | None = None
    #: The members of groups; None: they are not recorded.
    memberships: Memberships | None = None
    #: Idempotent producers whose numbers are kept; None: all are relayed.
    kept: KeptClients | None = None
    #: The ends of logs, as far as they are known, and the report of acknowledged records that one has lost.
    ends: KnownEnds = field(default_factory=KnownEnds)


@dataclass(slots=True)
class Fetched:
    """What is remembered between the Fetch requests of a connection, and counted since it was last asked."""

    #: A batch in zstd was met, which Fetch below v10 can't carry: from now on fetch newer and re-encode.
    reencodes: bool = False
    #: Records and batches converted for this client: {(direction, magic): (batches, records)}.
    converted: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    #: What was converted beforehand for the response at hand; None: nothing was.
    conversions: ConversionMemo | None = None
    #: By topic (or its id in hexadecimal) and partition.
    passed: dict[TopicPartition, Passed] = field(default_factory=dict)
    #: Bytes that were hidden from the client.
    hidden_bytes: int = 0
    #: High watermark less last stable offset, of what was read.
    stable_lags: dict[TopicPartition, int] = field(default_factory=dict)

    def count_converted(self, direction: str, magic: int, batches: int, records: int) -> None:
        """Adds to the conversion counters; direction is ``up`` (to the broker) or ``down``."""
        had = self.converted.get((direction, magic), (0, 0))
        self.converted[direction, magic] = had[0] + batches, had[1] + records


@dataclass(slots=True)
class Context:
    """What a handler may know of the connection on which a request came."""

    services: Services
    policy: Policy = Policy()  # a constant
    client: Client = Client()  # a constant
    #: What this connection may do with transactions.
    permits: Permits = Permits()  # noqa: RUF009  # a constant
    #: What this connection may do, by the rules of ``acl.file``; None: all.
    access: "Access | None" = None
    #: What this connection uses of its quotas; None: it has none.
    meter: "Meter | None" = None
    #: Whether the broker surely knows who the client is, if it wants to; nothing is done for others.
    logged_in: bool = True
    #: What the broker of this connection serves, by API key.
    broker_versions: Mapping[int, VersionRange] = field(default_factory=dict)
    #: What it said of itself when kproxy asked, for clients that have not logged in; None: it was not asked.
    broker_said: ApiVersionsResponse | None = None
    #: The broker of this connection.
    node_id: int = -1
    #: What ``Policy.transcode`` has for this client.
    transcode: Mapping[int, int] = field(default_factory=dict)
    #: The time of the call into the session that is under way, in seconds since the epoch.
    now: float = 0.0
    #: When the request at hand was received: before ``now``, if it has waited.
    received_at: float = 0.0
    #: The last thing that was refused to this client, or that its broker answered with an error; for people.
    fault: Fault | None = None
    #: The broker owes more responses: none that holds records may wait, or they would pile up after it.
    pipelines: bool = False
    fetched: Fetched = field(default_factory=Fetched)
    #: The last ``client`` whose holder was asked for, and that.
    _held: tuple[Client, IdHolder] | None = None
    #: What this connection has of the process: the budget of each message is a part of it.
    share: Share = field(init=False)

    def __post_init__(self) -> None:
        self.share = Share(self.policy)

    @property
    def cluster(self) -> ClusterMap:
        return self.services.cluster

    @property
    def decides_transactions(self) -> bool:
        """Whether there may be a transactional id about whose transactions kproxy is asked."""
        homes = self.policy.homes
        return homes is not None and any_kproxys(homes, self.broker_versions)

    def is_home_of(self, transactional_id: str) -> bool:
        """Whether kproxy is asked about the transactions of an id."""
        homes = self.policy.homes
        return homes is not None and is_kproxys(homes, transactional_id, self.broker_versions)

    def may_use(self, transactional_id: str) -> bool:
        """Whether this client may use a transactional id; those of kproxy's own writers are nobody else's."""
        if is_own_name(transactional_id):
            return False
        return self.permits.may_use(transactional_id, self.client.client_id, self.client.principal)

    @property
    def holder(self) -> IdHolder:
        """The client to which ids are given here: its principal, or without a login its client.id and host."""
        if self._held is None or self._held[0] is not self.client:
            self._held = self.client, self._holder()
        return self._held[1]

    def _holder(self) -> IdHolder:
        client = self.client
        if client.principal != ANONYMOUS:
            return IdHolder(client.principal)
        return IdHolder("", client.client_id, counted_host(client.host, by_address=self.policy.by_address))

    def advertised(self, node_id: int) -> Address | None:
        """The address to tell this client for a broker."""
        return self.services.cluster.advertised(node_id, self.client.local_host)

    def know(self, **more: Any) -> None:
        """Records what has become known of the client: fields of ``Client``."""
        self.client = replace(self.client, **more)

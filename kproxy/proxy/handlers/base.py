"""What a handler of one API key is: two pure functions, one towards the broker and one towards the client."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kproxy.codec._generated.api_versions import ApiVersionsResponse
from kproxy.codec.conversion_memo import ConversionMemo
from kproxy.codec.messages import Message
from kproxy.codec.topic_partition import TopicPartition
from kproxy.codec.version_choice import VersionRange
from kproxy.proxy.authorization.access import Access
from kproxy.proxy.coordinator_requests import CoordinatorRequest, GroupRequest
from kproxy.proxy.coordinator_rules import HomeRule, any_kproxys, is_kproxys
from kproxy.proxy.permits import Permits
from kproxy.proxy.principals import ANONYMOUS
from kproxy.proxy.quotas.meter import Meter
from kproxy.proxy.routing import Address, ClusterMap, is_own_name
from kproxy.txn.ids import Producer
from kproxy.txn.last_stable import LastStable, Question
from kproxy.txn.verdict import Decisions
from kproxy.txn.views import Views

if TYPE_CHECKING:
    from kproxy.proxy.applications import Applications
    from kproxy.proxy.implicit_produce import ImplicitTransactionFinder
    from kproxy.proxy.memberships import Memberships


class Fault(NamedTuple):
    """What went wrong for a client: a word or two, and when (seconds since the epoch)."""

    reason: str
    at: float


class Passed(NamedTuple):
    """Where nothing can be delivered to a consumer: its offset, the next that may hold something, and who hinders."""

    start: int
    next_offset: int
    undecided: Producer | None
    #: The isolation level for which this holds.
    level: int = 0
    #: Below this the log ended then.
    high_watermark: int = -1


def _as_asked(client_id: str) -> None:
    """No client has an isolation level of its own."""


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
    #: Array elements that one request may have, other than Produce.
    max_request_elements: int = 20_000
    client_id: str = ""
    #: Who the client is, in Kafka's form; surely known once a request is taken.
    principal: str = ANONYMOUS
    #: Whether SASL of the client goes through to the broker.
    passes_sasl: bool = True
    #: Whether the broker surely knows who the client is, if it wants to; nothing is done for others.
    logged_in: bool = True
    #: What the broker of this connection serves, by API key.
    broker_versions: Mapping[int, VersionRange] = field(default_factory=dict)
    #: What it said of itself when kproxy asked, for clients that have not logged in; None: it was not asked.
    broker_said: ApiVersionsResponse | None = None
    #: Whether clients log in at kproxy, not at the broker.
    logs_in_here: bool = False
    #: A batch in zstd was met, which Fetch below v10 can't carry: from now on fetch newer and re-encode.
    reencode_fetches: bool = False
    #: Records and batches converted for this client so far: {(direction, magic): (batches, records)}.
    converted: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    #: What was converted beforehand for the answer at hand; None: nothing was.
    conversions: ConversionMemo | None = None
    #: By topic (or its id in hexadecimal) and partition.
    passed: dict[TopicPartition, Passed] = field(default_factory=dict)
    #: What was hidden from this client since this was last counted, in bytes.
    hidden_bytes: int = 0
    #: High watermark less last stable offset, of what was read since this was last counted.
    stable_lags: dict[TopicPartition, int] = field(default_factory=dict)
    #: The time of the frame at hand, in seconds since the epoch.
    now: float = 0.0
    #: What ApiVersions v3 and later called the client's software (KIP-511).
    software: str = ""
    software_version: str = ""
    #: The version of its last ApiVersions request; -1 if it has sent none.
    api_versions: int = -1
    #: The last thing that was refused to this client, or that its broker answered with an error; for people.
    fault: Fault | None = None
    #: What kproxy's transaction log says; None if it is not read.
    decisions: Decisions | None = None
    #: The last stable offsets that are reported, by all connections of this process.
    stable: LastStable = field(default_factory=LastStable)
    #: The broker owes more responses: none that holds records may wait, or they would pile up behind it.
    pipelines: bool = False
    #: Whether the offsets of groups may stand in kproxy's transaction log.
    follows_groups: bool = False
    #: Whether clients that can't say so read committed data only.
    legacy_committed: bool = True
    #: By client id whether it reads committed data only, whatever it asks for; None: as it asks.
    committed_for: Callable[[str], bool | None] = _as_asked
    #: All that the transaction log says; None if it is not read.
    views: Views | None = None
    #: What this connection may do, by the rules of ``acl.file``; None: all.
    access: Access | None = None
    #: What this connection uses of its quotas; None: it has none.
    meter: Meter | None = None
    #: What this connection may do with transactions.
    permits: Permits = Permits()  # noqa: RUF009  # a constant
    #: Whose transactions kproxy decides; None: nobody's.
    homes: Sequence[HomeRule] | None = None
    #: Whose Produce requests go into transactions that the client knows nothing of; None: nobody's.
    implicit_transactions: "ImplicitTransactionFinder | None" = None
    #: Whose OffsetCommits are the ends of transactions; None: nobody's.
    applications: "Applications | None" = None
    #: Who is in which group; None: nobody asks.
    memberships: "Memberships | None" = None
    #: Where the client connects from.
    host: str = ""
    #: The broker of this connection.
    node_id: int = -1
    #: The serial number of the client's connection, rising.
    connection: int = 0

    @property
    def decides_transactions(self) -> bool:
        """Whether there may be a transactional id about whose transactions kproxy is asked."""
        return self.homes is not None and any_kproxys(self.homes, self.broker_versions)

    def is_home_of(self, transactional_id: str) -> bool:
        """Whether kproxy is asked about the transactions of an id."""
        return self.homes is not None and is_kproxys(self.homes, transactional_id, self.broker_versions)

    def may_use(self, transactional_id: str) -> bool:
        """Whether this client may use a transactional id; those of kproxy's own writers are nobody else's."""
        if is_own_name(transactional_id):
            return False
        return self.permits.may_use(transactional_id, self.client_id, self.principal)

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
    #: The API key of the question that is asked of the broker, where that is not the client's.
    asked: int | None = None


@dataclass(slots=True)
class Again:
    """The answer is not enough yet: ask the broker this, too, at ``version`` (None: as before)."""

    request: Message
    version: int | None = None


@dataclass(slots=True)
class Local:
    """Nothing to ask: this is the answer."""

    answer: Message


@dataclass(slots=True)
class Park:
    """Not to be answered yet: resumed when the transaction log says more, or at ``until`` (seconds since the epoch)."""

    until: float


@dataclass(slots=True)
class Stable:
    """Not to be answered yet: to be resumed when it is known up to where all is decided.

    What is told then is, for each place, what ``LastStable.found`` says; None where nothing is known.
    """

    question: Question
    #: So long is waited at most (seconds since the epoch).
    until: float = inf


@dataclass(slots=True)
class Restated:
    """The answer of the broker is the client's but for the last stable offsets: those of all rows, in their order."""

    stable: Sequence[int]


class AsItIs:
    """The answer of the broker is the client's, to the byte."""


#: What becomes of a broker's answer.
Lowered: TypeAlias = Message | Again | AsItIs | Restated | Park | Stable | GroupRequest


class Handler:
    """Lift and lower by the codec alone: right for each API whose fields only grew."""

    def rewrites(self, ctx: Context, version: int, upstream: int) -> bool:
        """Whether answers (or requests) must be decoded though both sides speak the same version."""
        return upstream != version

    def rewrites_this(self, ctx: Context, version: int, request: memoryview) -> bool:
        """Whether this request, header included, must be decoded though ``rewrites`` says no: its content tells."""
        return False

    def ask_version(self, ctx: Context, version: int, upstream: int) -> int:
        """The version for the broker, given the one that ``upstream_version`` chose."""
        return upstream

    def lift(self, ctx: Context, exchange: Exchange) -> Message | Local | CoordinatorRequest:
        """What to ask the broker, or whom else."""
        request: Message = exchange.request
        return request

    def brokers_in(self, response: Any) -> Iterable[tuple[int, str, int]]:
        """The brokers (node id, host, port) that an answer names: each needs an address of kproxy's first."""
        return ()

    def long_work(self, ctx: Context, exchange: Exchange, response: Any) -> Callable[[], None] | None:
        """What takes long of ``lower``: to be called before it, by any thread; None if nothing does."""
        return None

    def lower(self, ctx: Context, exchange: Exchange, response: Any) -> Lowered:
        """What to answer the client, or what else to ask or wait for."""
        answer: Message = response
        return answer

    def resume(self, ctx: Context, exchange: Exchange, told: Mapping[TopicPartition, int | None]) -> Lowered:
        """As ``lower``, behind a ``Park`` or ``Stable``; ``told`` is what the latter asked for.

        May be called before its time. Only for handlers that return these.
        """
        raise NotImplementedError

"""The plan of one run of the simulation: plain data, made from a seed, that can be cut down to what breaks a rule."""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from verification.simulation.contents import UNLABELLED, Labels
from verification.simulation.weather import NEAR, Weather

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from verification.simulation.world import World

TOPIC: Final = "t"
PARTITIONS: Final = 6
BROKERS: Final = 3

Settings: TypeAlias = tuple[tuple[str, str], ...]
"""Settings of the topic."""

#: Seconds in which clients begin their sends and faults occur; after them there are no more faults.
BUSY_SECONDS: Final = 20.0

#: Every kind of fault, by what it harms.
FAULTS: Final = (
    "crash",
    "cut",
    "cut_answer",
    "delay",
    "close",
    "half_open",
    "slow_reader",
    "clock",
    "upstream_cut",
    "upstream_delay",
    "upstream_half_open",
    "lost_answer",
    "dropped_answer",
    "slow_broker",
    "not_enough_replicas",
    "after_append",
    "timed_out",
    "stepped_down",
    "leader",
    "broker",
    "state_lost",
    "controller",
    "disk",
    "lag",
    "more_partitions",
)
#: Routes that are cut, in both directions or in one, for up to a minute; balancers that are restarted.
ROUTES: Final = ("route", "route_there", "route_back", "balancer")
#: Kinds of which only runs that are made for them know what to expect.
OTHER_FAULTS: Final = ("topic",)


class Relay(Enum):
    """A relay that ends TCP between a client and kproxy."""

    NONE = "none"
    #: A balancer that says whose connection it is (PROXY protocol), and so that it is there.
    NAMED = "named"
    #: One that kproxy does not know of.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Send:
    """One request of a client: seconds since the one before, and for each partition the values of a batch."""

    gap: float
    batches: tuple[tuple[int, tuple[bytes, ...]], ...]


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """One process that produces."""

    number: int
    client_id: str
    host: str
    instance: int
    version: int
    magic: int
    codec: int
    depth: int
    acks: int
    sends: tuple[Send, ...]
    #: The form of batches that it sends again: "same", "split", "join".
    regroup: str = "same"
    #: Sends the whole request again if one partition of it got an error.
    repeats_whole: bool = False
    #: Comes from the same host by another name (an IPv4 address mapped into IPv6) with each connection.
    renames: bool = False
    #: Sends again in another order (pipelining clients do).
    shuffles: bool = False
    #: Has its next request ready when it reads an error, and sends that before it repeats (librdkafka does).
    ready: bool = False
    #: Reads the responses to all that it has sent before it sends more, beginning with what was not acknowledged; and
    #: gives each record another timestamp, since otherwise what it sent after a refused one could not be told from its
    #: retry.
    in_rounds: bool = False
    #: Seconds after which it adds nothing to what is in flight before it reads a response.
    fills_for: float = 0.0
    #: Gives its records new timestamps when it sends them again, and has a client.id that says so.
    renews_timestamps: bool = False
    #: After its time-out: closes the connection, or stays on it and throws the late response away.
    closes_on_timeout: bool = True
    request_timeout: float = 6.0
    #: Of the request, as in kproxy's option.
    timeout_ms: int = 4000
    tries: int = 12
    #: Keys and headers of its records; a compacted topic needs keys, and format 2 alone has headers.
    labels: Labels = UNLABELLED
    #: Its records are so old when they are sent first (seconds).
    age: float = 0.0
    #: Seconds that it waits before it connects again, one of these.
    backoffs: tuple[float, ...] = (0.02, 0.1, 0.3)
    #: With each connection it goes to one of so many instances; 0: it stays at its own.
    instances: int = 0
    #: Closes its connection in good order when it has read its responses, and opens another: one process for each
    #: record, or one connection for each request.
    closes_each: bool = False
    #: Its clock shows multiples of so many ms: equal records may have equal timestamps.
    clock_ms: int = 1
    #: The relay that it comes through; ``host`` is the address that kproxy sees.
    relay: Relay = Relay.NONE
    #: Has a connection to each leader and keeps it when leaders move, as librdkafka and Java do: a retry may come over
    #: a connection that is older than the one on which the request was sent.
    keeps_connections: bool = False
    #: Is idempotent: numbers its batches itself. What it gives up is a gap in its numbers.
    numbered: bool = False
    #: Raises its epoch after a time-out, or when it gives a batch up, once nothing is in flight, as librdkafka does:
    #: what it has no success for goes under new numbers, on every partition. The form of the batches then, as
    #: ``regroup`` has it; empty: it never does.
    raises: str = ""

    @property
    def is_pioneer(self) -> bool:
        """Whether it sends to partitions that may not exist yet.

        A broker refuses requests that arrive before a partition exists, and may accept those sent after them.
        """
        return any(at >= PARTITIONS for send in self.sends for at, _ in send.batches)


def instance_name(number: int) -> str:
    """The name under which a kproxy runs."""
    return f"kproxy-{number}"


def plain_client(number: int, sends: tuple[Send, ...], **more: Any) -> ClientPlan:
    """A producer of v2 batches with one request at a time; ``more``: in what it differs."""
    given: dict[str, Any] = {
        "client_id": f"c{number}",
        "host": f"10.0.0.{number + 1}",
        "instance": 0,
        "version": 5,
        "magic": 2,
        "codec": 0,
        "depth": 1,
        "acks": -1,
        **more,
    }
    return ClientPlan(number=number, sends=sends, **given)


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """A fault: when, what, and two numbers in [0, 1) from which it picks where and how hard."""

    time: float
    kind: str
    where: float
    much: float


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    seed: int
    clients: tuple[ClientPlan, ...]
    faults: tuple[FaultPlan, ...]
    instances: int = 1
    #: Of kproxy, beside those of all runs.
    options: dict[str, Any] = field(default_factory=dict)
    #: Of the topic.
    topic: Settings = ()
    #: Brokers look so often which producers they may forget, in ms.
    expiry_check_ms: int = 600_000
    #: Of a run made by hand: what happens beside the faults.
    script: "Callable[[World], Awaitable[None]] | None" = None
    #: kproxy can tell all equal records of this run apart.
    strict: bool = False
    weather: Weather = NEAR
    #: Sequence numbers of leased producer ids begin here on their first lease.
    first_sequence: int = 0

    @property
    def sends(self) -> int:
        """The number of requests that the clients mean to make."""
        return sum(len(client.sends) for client in self.clients)


#: Client.ids of clients that renew timestamps begin so.
RENEWING: Final = "renewing-"
LOG_APPEND_TIME: Final[Settings] = (("message.timestamp.type", "LogAppendTime"),)
GZIP: Final[Settings] = (("compression.type", "gzip"),)
#: Two days: brokers forget a producer whose records are so old when they next look.
OLD: Final = 172_800.0

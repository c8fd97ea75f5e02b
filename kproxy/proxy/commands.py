"""What a session asks of its shell: the outgoing half of the contract between the two (``Session`` is the other).

A request that cannot be taken at once is a *procedure* (``Session.request``): it yields each *blocking* command, and
continues when the shell has carried it out. *Queued* commands are in ``Session.commands``: the shell carries them out
as soon as the call into the session that added them has returned.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kproxy.budget import Work
from kproxy.dedup.lanes import Track, TrackKey
from kproxy.dedup.producer_connection import ProducerConnection
from kproxy.dedup.retry_ledger import Prerequisite
from kproxy.proxy.coordinator_requests import CoordinatorRequest
from kproxy.proxy.handlers.base import Exchange, Handler, Park, Stable
from kproxy.proxy.slots import Slot
from kproxy.txn.last_stable import Question

if TYPE_CHECKING:
    from kproxy.proxy.client_login.steps import Check, Verdict

# -- blocking


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to the broker; then ``Session.connected``."""


@dataclass(frozen=True, slots=True)
class AskVersions:
    """Ask what the brokers serve, without a connection for the client; then ``Session.versions_known``."""


@dataclass(frozen=True, slots=True)
class CheckLogin:
    """Check a password or a token, and report the verdict with ``checked``."""

    check: "Check"
    checked: "Callable[[Verdict], None]"


@dataclass(frozen=True, slots=True)
class DelayRefusal:
    """Log why a login is refused, and let time pass before the client gets its response."""

    reason: str
    mechanism: str


@dataclass(frozen=True, slots=True)
class LeaseProducerId:
    """Lease a producer id; then ``Session.lease``."""


@dataclass(frozen=True, slots=True)
class OpenLog:
    """Wait until the log of producer ids is open: before, nobody knows to whom ids were given."""


@dataclass(frozen=True, slots=True)
class AwaitProgress:
    """Wait until a response came or batches were sent again."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Do long work on a request in another thread (``Work.whole``).

    RemoteProtocolError: the request is malformed, or needs more than its budget.
    """

    work: Work[Any]


@dataclass(frozen=True, slots=True)
class Resolve:
    """Do what must be done about unconfirmed batches before the frame can be compared with them."""

    member: ProducerConnection
    prerequisite: Prerequisite


@dataclass(frozen=True, slots=True)
class AwaitOutcomes:
    """Wait until outcomes are known: of another connection's batches, or of requests that timed out on this one."""


@dataclass(frozen=True, slots=True)
class AwaitEnd:
    """Wait until this time (s), by which the end of the connection is seen if its client has left it."""

    until: float


Blocking: TypeAlias = (
    Connect
    | AskVersions
    | CheckLogin
    | DelayRefusal
    | LeaseProducerId
    | OpenLog
    | AwaitProgress
    | Beside
    | Resolve
    | AwaitOutcomes
    | AwaitEnd
)
#: The steps by which a request is taken that has to wait: resumed when the command that it yielded is carried out.
Procedure: TypeAlias = Generator[Blocking, None, None]

# -- queued


@dataclass(slots=True, eq=False)
class AskCoordinator:
    """Send a request to another than the broker of the connection; then ``Session.coordinator_answered``."""

    slot: Slot
    handler: Handler
    exchange: Exchange
    ask: CoordinatorRequest


@dataclass(slots=True, eq=False)
class WaitForLog:
    """Wait for the transaction log; then ``Session.resume``."""

    slot: Slot
    handler: Handler
    exchange: Exchange
    reason: Park | Stable

    @property
    def question(self) -> Question | None:
        """Up to where partitions are decided, if that is what is waited for; else for what the log says next."""
        return self.reason.question if isinstance(self.reason, Stable) else None


class Unsettled(Protocol):
    """The batches of a session that have to be sent again. The session takes no request meanwhile.

    ``now`` is in seconds since the epoch.
    """

    @property
    def by_id(self) -> bool:
        """Whether they name topics by id (Produce v13 and later)."""

    @property
    def longest_timeout_ms(self) -> int:
        """The longest time that a request in flight allows the broker."""

    def unsettled(self) -> Sequence[Track]:
        """The partitions with such batches."""

    def requeue(self) -> bool:
        """Without a connection to the broker, adds the batches that were never sent. True if there are some."""

    def progressed(self, now: float) -> None:
        """Answers the requests whose outcome has become known."""

    def led_elsewhere(self, key: TrackKey) -> None:
        """Records that the broker of the client's port does not lead a partition: a retry is answered so."""

    def left_unfenced(self, track: Track, copies: frozenset[tuple[int, int]], now: float) -> None:
        """Records that copies of batches that were given up may still be written: (epoch, sequence) of each."""

    def recovered(self, now: float) -> None:
        """Every outcome is known: the session continues."""

    def abandon(self) -> None:
        """Gives up; the connection has to end. Another connection finds out the outcomes."""


@dataclass(frozen=True, slots=True)
class Resend:
    """Send batches again until the outcome of each is known."""

    batches: Unsettled


@dataclass(frozen=True, slots=True)
class Mute:
    """Take no request of the client before ``until`` (seconds since the epoch), as a broker does it (KIP-219)."""

    until: float


@dataclass(frozen=True, slots=True)
class Close:
    """End the client's connection once ``Session.to_client`` is written."""


@dataclass(frozen=True, slots=True)
class WarnOfUntimed:
    """Log that a record on a partition was taken for a retry although its timestamp did not show it."""

    member: ProducerConnection
    key: TrackKey


@dataclass(frozen=True, slots=True)
class WarnOfRefusal:
    """Log that batches of the client are refused."""

    #: As ``kproxy_refusals_total`` names it.
    reason: str


@dataclass(slots=True, eq=False)
class Encode:
    """Encode a long response in another thread; then ``Session.encoded``."""

    slot: Slot
    #: Makes the frame; LocalProtocolError if the message can't be said.
    encode: Callable[[], bytes]


Queued: TypeAlias = AskCoordinator | Encode | WaitForLog | Resend | Mute | Close | WarnOfUntimed | WarnOfRefusal

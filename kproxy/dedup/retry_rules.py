"""The rules that decide which responses a client has received, and which requests may be its retries.

Each rule is one small method without a state. They were found with an explicit-state model of retries: each prevents a
flaw that the model showed. A simulation takes them away one at a time and shows the flaw again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kproxy.dedup.digest import UNTIMED, Digest
from kproxy.dedup.identity import Identity
from kproxy.dedup.unconfirmed import PendingProduce, UnconfirmedBatch

if TYPE_CHECKING:
    from kproxy.dedup.producer_connection import Suspect

#: The clocks of two instances may differ by less.
CLOCKS_AGREE_SECONDS = 1.0
#: Clients look at their clocks now and then, and take a while to close a connection.
_TIMEOUT_MARGIN = 1.5
#: Seconds. A host may take its time to acknowledge what it has (delayed ACK, up to 0.2 s), and networks theirs.
_SLOWEST_ACKNOWLEDGEMENT = 1.0
#: Times a client's window. More than a client sends before its first retry, if it reconnects under full load.
_SETTLED_WINDOWS = 2
#: After so many requests, each sent after the response to the one before, a client is known to wait for each response.
_TELLING_REQUESTS = 100


def renews_timestamps(client_id: str, patterns: Iterable[str]) -> bool:
    """Whether a client gives a record a new timestamp when it sends it again (``clients.new.timestamps``)."""
    return any(fnmatchcase(client_id, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Rules:
    """Which retries kproxy expects of clients. Times are in seconds; docs/configuration.md describes the options."""

    #: retry.window.ms
    window: float
    #: clean.close.window.ms
    clean_window: float
    #: clients.in.flight
    in_flight: int
    #: clients.request.timeout.ms
    client_timeout: float
    #: clients.new.timestamps
    new_timestamps: tuple[str, ...] = ()
    #: Whether this client gives a record a new timestamp when it sends it again.
    renews_timestamps: bool = False

    def of(self, identity: Identity) -> "Rules":
        """The rules for one producer."""
        renews = renews_timestamps(identity.client_id, self.new_timestamps)
        return replace(self, renews_timestamps=True) if renews else self

    # -- had

    def depth(self, observed: int) -> int:
        """Requests that a client may have sent before it reads a response."""
        return 1 if self.in_flight == 1 else max(observed, self.in_flight)

    def gave_up_open(self) -> bool:
        """A client that waits for each response has given up what is open when it sends another request."""
        return self.in_flight == 1

    def received_by_requests(self, answer: PendingProduce, number: int, depth: int) -> bool:
        """Request ``number`` shows that the response was received: the client had no room to send it before."""
        return answer.behind + depth <= number

    def received_by_time(self, answer: PendingProduce, now: float, acknowledged: int) -> bool:
        """The connection outlived every time-out of its client after a response that was acknowledged."""
        return answer.position <= acknowledged and now - answer.at >= _TIMEOUT_MARGIN * self.client_timeout

    def may_repeat(self, answer: PendingProduce) -> bool:
        """The client may send the request again although it has received the response.

        It may have discarded a response that came after its time-out. After a response with an error in it, the whole
        request may be retried, with the partitions that succeeded.
        """
        return answer.failed or answer.at > answer.due

    def surely_retried(self, entry: UnconfirmedBatch) -> bool:
        """The client had no success: its retry comes, and so before an equal one that may have been received."""
        return entry.sure or not entry.written

    def sent_too_soon(self, repeated_from: float, received_at: float) -> bool:
        """A request that was read at ``received_at`` is no retry of one that its client keeps until ``repeated_from``.

        A client that waits for each response gives up what is open whenever it sends another request.
        """
        return received_at < repeated_from and self.in_flight != 1

    def surely_not_received(self, answer: PendingProduce, acknowledged: int, now: float) -> bool:
        """The end of the response has not reached the client's host, which had the time to say so."""
        return answer.position > acknowledged and now - answer.at > _SLOWEST_ACKNOWLEDGEMENT

    def surely_not_received_elsewhere(self, entry: UnconfirmedBatch, in_use_until: float) -> bool:
        """No other instance can have answered a retry: none had the producer at ``in_use_until`` (s) or later.

        An instance that finds the batch in the log answers a success, and writes nothing that would show it.
        """
        return in_use_until + CLOCKS_AGREE_SECONDS < entry.taken_at

    # -- other processes

    def is_answered_by_list(self, lane: "Suspect", opened_at: float, *, ended: bool) -> bool:
        """A list says all that a connection may repeat of a producer id that another instance gave back.

        It does not say what was written and confirmed there. A request that its client sent before that may be read
        here after it: over a connection that was opened before the other one was given back, or that has ended.
        """
        return lane.says_all and not ended and opened_at > lane.recorded_at + CLOCKS_AGREE_SECONDS

    def is_found_by_time_only(self, lanes: "Iterable[Suspect]", *, is_last: bool) -> bool:
        """Only equal timestamps make a record a retry of one that was found in the log of these producer ids.

        A client has many requests in flight, or reads its responses late, so any batch within the retry window may be
        sent again. But nearly all were confirmed, and records without timestamps of the client may be equal: of these
        only the last ones count, as long as nobody knows better. Not those of a producer id whose instance listed what
        is in doubt, nor those that another process may write at the same time.
        """
        return not any(lane.only is not None or (is_last and not (lane.says_all or lane.shared)) for lane in lanes)

    # -- matched

    def joins_open(self) -> bool:
        """A retry waits for the one outcome of a batch that is still open, and is compared with it then."""
        return True

    def stays_unconfirmed(self) -> bool:
        """What was matched is unconfirmed again until the response to the retry is received."""
        return True

    def keeps_matching(self, *, observed: int, requests: int, had_new: bool) -> bool:
        """Whether records after new records are still compared with unconfirmed ones.

        A client with one request in flight repeats first; after new records it has given up the rest. This holds for
        the records of one request, or of two where the first may have been ready (``has_one_ready``). ``requests`` of
        the client arrived while at most ``observed`` had no response; a few may have come alone by chance.
        """
        alone = self.in_flight == 1 or (observed == 1 and requests >= _TELLING_REQUESTS)
        return not (had_new and alone)

    def retires(self) -> bool:
        """What a client that waits for each response has given up comes over no other connection either."""
        return self.in_flight == 1

    def has_one_ready(self) -> bool:
        """A client may have made its next request before it read an error, and sends that before it repeats.

        librdkafka does so even with max.in.flight 1, though its requests arrive one by one. It also does so at a new
        leader, before it repeats there the request that the former leader refused.
        """
        return self.in_flight != 1

    def drops_orphan(self, *, outrun: bool) -> bool:
        """A request that is read after the end of its connection is dropped if another connection was there before.

        No client waits for its response. Its client has sent it again, or given it up.
        """
        return outrun

    def expired(self, entry: UnconfirmedBatch, now: float) -> bool:
        """No client retries for so long."""
        return now - entry.since > self.window

    def settled_requests(self, observed: int) -> int:
        """Requests in a row for a partition, all new, after which a retry shows in a batch's header or first record.

        Clients send retries before new records. What comes later is compared in full only if the timestamps of the
        batch reach those of unconfirmed ones, or its first record equals one that may be repeated with another
        timestamp.
        """
        return _SETTLED_WINDOWS * self.depth(observed)

    def ends_of(self, entry: UnconfirmedBatch) -> tuple[float, ...]:
        """The times (s) at which fewer records may repeat an entry than before; the last is when none may."""
        clean_end = (entry.since + self.clean_window,) if entry.clean else ()
        return (*clean_end, entry.since + self.window)

    def times_agree(self, entry: UnconfirmedBatch, ours: Digest, theirs: Digest, now: float) -> bool:
        """Whether the timestamps of an unconfirmed record and of one that equals it allow that they are one."""
        if ours.timestamp_ms == theirs.timestamp_ms and ours.timestamp_ms != UNTIMED:
            return True
        if entry.timed_only:
            return False
        untimed = UNTIMED in (ours.timestamp_ms, theirs.timestamp_ms)
        if untimed or (self.renews_timestamps and not entry.sure):
            return not entry.clean or now - entry.since <= self.clean_window
        return entry.sure

    def newest_first(self) -> bool:
        """Of equal records the last is what was not had: answers are read in order."""
        return True

    def across_order(self) -> bool:
        """A record that equals an unconfirmed one is matched with it even if others of its batch are not in order."""
        return True

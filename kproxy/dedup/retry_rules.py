"""The rules that decide which responses a client has received, and which requests may be its retries.

Each rule is one small method without a state. They were found with an explicit-state model of retries: each prevents a
flaw that the model showed. A simulation takes them away one at a time and shows the flaw again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kproxy.dedup.digest import UNTIMED, Digest, have_same_time
from kproxy.dedup.identity import Identity
from kproxy.dedup.origin import Origin, Silence
from kproxy.dedup.unconfirmed import PendingProduce, UnconfirmedBatch

if TYPE_CHECKING:
    from kproxy.dedup.producer_connection import Suspect

#: The clocks of two instances may differ by less.
CLOCKS_AGREE_SECONDS = 1.0
#: Clients look at their clocks now and then, and take a while to close a connection.
_TIMEOUT_MARGIN = 1.5
#: Seconds after which a connection that broke unseen is known to have ended: keepalive, and TCP_USER_TIMEOUT.
BROKEN_FOR_AT_MOST = 30.0
#: Seconds after the write within which a response passes whatever ends TCP between kproxy and the client, and a request
#: that was sent before has arrived.
_LONGEST_ROUND_TRIP = 1.0
#: Seconds. A program that has written nothing for so long has read what its kernel had received by then.
_SILENCE = 1.0
#: Seconds within which the end of a connection follows what was sent before it.
_END_FOLLOWS = 1.0
#: Bytes. Less waits in the client's kernel, in the network and in kproxy's kernel.
_MOST_UNSENT = 16 << 20
#: Requests in flight that clients have by default, as these do by their names (KIP-511). Others that have a name are
#: librdkafka, or built on it.
USUAL_DEPTH = 5
_OF_USUAL_DEPTH = frozenset({"apache-kafka-java", "sarama", "kgo", "franz-go", "kafka-python", "aiokafka", "kafkajs"})
#: Requests that a client of unknown depth may have in flight: librdkafka allows a million, but its buffers do not.
_UNKNOWN_DEPTH = 1000
#: Times a client's window. More than a client sends before its first retry, if it reconnects under full load.
_SETTLED_WINDOWS = 2
#: After so many requests, each sent after the response to the one before, a client is known to wait for each response.
_TELLING_REQUESTS = 100


def is_among(client_id: str, patterns: Iterable[str]) -> bool:
    """Whether a client.id matches one of the glob patterns of an option (``clients.new.timestamps``)."""
    return any(fnmatchcase(client_id, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Rules:
    """The retries that kproxy expects of clients. Times are in seconds; docs/configuration.md describes the options."""

    #: retry.window.ms
    window: float
    #: clients.in.flight; None: auto.
    in_flight: int | None
    #: clients.request.timeout.ms
    client_timeout: float
    #: clients.new.timestamps
    new_timestamps: tuple[str, ...] = ()
    #: clients.connection.pools
    connection_pools: tuple[str, ...] = ()
    #: fleet.retries.enable
    fleet: bool = False
    #: Whether this client gives a record a new timestamp when it sends it again.
    renews_timestamps: bool = False
    #: Whether this client may have several connections to one broker in use.
    pools_connections: bool = False

    def of(self, identity: Identity) -> "Rules":
        """The rules for one producer."""
        renews = is_among(identity.client_id, self.new_timestamps)
        pools = is_among(identity.client_id, self.connection_pools)
        if not (renews or pools):
            return self  # nearly all producers share one
        return replace(self, renews_timestamps=renews, pools_connections=pools)

    # -- had

    def depth(self, observed: int) -> int:
        """Requests that a client surely sends before it reads a response; ``observed`` of it had none at one time."""
        if self.in_flight == 1:
            return 1
        return max(observed, USUAL_DEPTH if self.in_flight is None else self.in_flight)

    def most_unread(self, observed: int, software: str) -> int:
        """Requests that a client may send after its kernel has a response and before it reads the response.

        ``software``: its name (KIP-511), empty if it has none. What a client of unknown depth has written may wait in
        its kernel, however many requests that are. If it was only seen to send one at a time, none was waiting.
        """
        usual = software in _OF_USUAL_DEPTH if software else observed == 1
        least = self.depth(observed)
        return least if usual or self.in_flight is not None else max(least, _UNKNOWN_DEPTH)

    def keeps_order(self, software: str) -> bool:
        """A client repeats what was refused before it sends anything else, by the name of its software (KIP-511).

        librdkafka does, however many requests it has in flight; Java, sarama and others do with one in flight.
        """
        return "rdkafka" in software or software.startswith("confluent-kafka")

    def gave_up_open(self) -> bool:
        """A client that waits for each response has given up what is open when it sends another request."""
        return self.in_flight == 1

    def has_arrived(self, answer: PendingProduce, acknowledged: int, now: float, *, is_direct: bool) -> bool:
        """Whether a response is in the client's kernel, so that what the client sends from now on may be evidence.

        That kernel has acknowledged it (``acknowledged`` bytes); where something between ends TCP, that one has.
        """
        return answer.position <= acknowledged and (is_direct or now - answer.at >= _LONGEST_ROUND_TRIP)

    def received_by_requests(self, answer: PendingProduce, number: int, most_unread: int) -> bool:
        """Request ``number`` shows that the response was received: the client had no room to send it before."""
        return answer.arrived_with + most_unread <= number

    def likely_read_in_silence(self, answer: PendingProduce, silence: Silence) -> bool:
        """A request shows that the response was read, unless the program stood still: it had sent nothing for a while.

        Nothing that it had written waited in its kernel then. A program that runs has read what was in its kernel for
        so long. One that was stopped, or collected its garbage, may write what it had ready, and close the connection,
        before it reads: only equal timestamps show a retry until it has run for a while (``has_had_time``).
        """
        return max(answer.arrived_at, silence.since) + _SILENCE <= silence.until

    def has_had_time(self, arrived_at: float, now: float) -> bool:
        """A program that writes a request from now on has read the responses that had arrived by then (s)."""
        return now - arrived_at >= _SILENCE

    def received_by_bytes(self, received: int) -> bool:
        """Whether so many bytes arrived since a program had had that time that it has written some of them since."""
        return received >= _MOST_UNSENT

    def received_by_time(self, answer: PendingProduce, now: float, acknowledged: int) -> bool:
        """The connection outlived every time-out of its client after a response had arrived, and was acknowledged.

        A client that reads late has no room for what is written: it may wait as long again for the end of a request.
        It may have ended the connection since, and a broken network have kept that from kproxy.
        """
        lived = now - BROKEN_FOR_AT_MOST - answer.arrived_at
        return answer.position <= acknowledged and lived >= _TIMEOUT_MARGIN * self.client_timeout

    def received_by_end(self, position: int, acknowledged: int, *, closed_well: bool) -> bool:
        """The client closed the connection in good order after its kernel had acknowledged the response.

        ``position``: as ``telling_position`` has it. Linux, BSD and Windows reset a connection that a program closes
        with unread data. Where something in between ends TCP it proves less (``untimed_until``).
        """
        return closed_well and 0 < position <= acknowledged

    def may_repeat(self, answer: PendingProduce) -> bool:
        """The client may send the request again although it has received the response.

        It may have discarded a response that came after its time-out. After a response with an error in it, the whole
        request may be retried, with the partitions that succeeded.
        """
        return answer.failed or answer.at > answer.due

    def telling_position(self, answer: PendingProduce) -> int:
        """The end of a response among the bytes of its connection; 0 if its client may have thrown it away."""
        return 0 if self.may_repeat(answer) else answer.position

    def is_too_late(self, answer: PendingProduce, now: float) -> bool:
        """The client may have given up a response that was not known to be in its kernel before ``now``.

        It may send the request again over the same connection. Or only the acknowledgement was late, so that an end in
        good order proves as much as ever.
        """
        return answer.due < now

    def surely_retried(self, entry: UnconfirmedBatch) -> bool:
        """The client had no success: its retry comes, and so before an equal one that may have been received."""
        return entry.sure or not entry.written

    def sent_too_soon(self, repeated_from: float, received_at: float) -> bool:
        """A request that was read at ``received_at`` is no retry of one that its client keeps until ``repeated_from``.

        A client that waits for each response gives up what is open whenever it sends another request.
        """
        return received_at < repeated_from and self.in_flight != 1

    def is_sent_before(self, received_at: float, entry: UnconfirmedBatch) -> bool:
        """A request that was read at ``received_at`` (s) is no retry of what came over a connection opened later.

        Unless it is that of which the other one is a retry.
        """
        return received_at < entry.origin.opened_at and not entry.may_be_second

    def surely_not_received(self, answer: PendingProduce, handed_over: int) -> bool:
        """The end of the response was never handed to the kernel (``handed_over`` bytes of the connection were).

        A missing acknowledgement shows nothing: it may be late or lost, and the response have been read.
        """
        return answer.position > handed_over

    def may_be_answered_since(self, *, outrun: bool) -> bool:
        """The client may have had a success for a record over a newer connection (``outrun``: that one was in use).

        It left this one before kproxy could see the end.
        """
        return outrun

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
        """Whether a matched record is unconfirmed again until the response to the retry is received."""
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
        """Whether a batch that its client has given up comes over no other connection: it waits for each response."""
        return self.in_flight == 1

    def has_one_ready(self) -> bool:
        """A client may have made its next request before it read an error, and sends that before it repeats.

        librdkafka does so even with max.in.flight 1, though its requests arrive one by one. It also does so at a new
        leader, before it repeats there the request that the former leader refused.
        """
        return self.in_flight != 1

    def is_left(self, since: float, now: float) -> bool:
        """Whether a client that opened another connection to the broker has left the one that owes it a response.

        ``since``: when that was given (s), or else when it asked over the other connection. Its kernel acknowledges a
        response within a round trip, unless the network is broken or the connection closed: kproxy learns of that once
        the network has healed, maybe after the retry.
        """
        return now - since >= _LONGEST_ROUND_TRIP

    def read_by(self, told_at: float) -> float:
        """The time (s) by which a client has surely read a response that was given at ``told_at``, as a request shows.

        What arrives sooner may have been sent before.
        """
        return told_at + _LONGEST_ROUND_TRIP

    def drops_orphan(self, *, outrun: bool) -> bool:
        """A request that is read after the end of its connection is dropped if another connection was there before.

        No client waits for its response. Its client has sent it again, or given it up.
        """
        return outrun

    def may_repeat_elsewhere(self) -> bool:
        """Whether a request may repeat what its client sent through another instance, which is not known here.

        A client that returns to an older connection has no lease taken for it, with which that would be read.
        """
        return self.fleet

    def looks_elsewhere(self, *, ended: bool) -> bool:
        """Whether other instances' leases are read before a request is written whose connection has ended.

        Its client may be at another instance by now. That has noted its lease before it writes anything.
        """
        return self.fleet and ended

    def may_be_left(self, mine: Origin, newer: Origin, now: float) -> bool:
        """Whether a request may be one that its client sent again over a newer connection, after it had left this one.

        What was lost of a connection is sent again by its kernel, its end after it, and may arrive after the
        retry. Not so where the client's kernel has acknowledged a response since the newer one was in use: then
        it is another program's. Nor is the first request of a connection that was opened just before: one of many
        processes of one name sends that.
        """
        is_old = mine.used_at > 0 or min(newer.first_at, now) - mine.opened_at >= _END_FOLLOWS
        return is_old and self.may_overtake(mine, newer)

    def may_overtake(self, mine: Origin, newer: Origin) -> bool:
        """Whether what comes over a newer connection may be sent again of what lies untaken over this one.

        That is read after its retry, maybe long after the client has the response to that. No end shows whether the
        client has left this connection: it may be lost, and what lies here came before it was. So records of both with
        equal timestamps are one, also where each of many processes of one name opens a connection.
        """
        if self.pools_connections or newer.node_id != mine.node_id or newer.opened_at <= mine.opened_at:
            return False
        return mine.heard_at <= newer.first_at

    def shows_end_by(self, outrun_at: float) -> float:
        """The time (s) when the end of a connection is seen, if its client has left: a kernel sends it after all data.

        ``outrun_at``: since when a request waits for that.
        """
        return outrun_at + _END_FOLLOWS

    def awaits_end(self, outrun_at: float, now: float) -> bool:
        """Whether a request waits for the end of its connection, or has just done so in vain: it is about to be taken.

        ``outrun_at``: as ``shows_end_by`` has it; inf if it does not.
        """
        return outrun_at <= now < self.shows_end_by(outrun_at) + _LONGEST_ROUND_TRIP

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

    def untimed_until(self, entry: UnconfirmedBatch) -> float:
        """The time (s) until which a record may repeat an unconfirmed one without an equal timestamp.

        It counts from what happened first to the record, so that no match renews it.
        """
        if entry.clean:
            return (entry.taken_at or entry.doubted_at) + entry.origin.clean_window
        return entry.doubted_at + self.window

    def is_answered(self, entry: UnconfirmedBatch) -> bool:
        """Its client has received the response, unless something ended TCP before the client that nobody declared."""
        return entry.clean and entry.origin.is_direct

    def ends_of(self, entry: UnconfirmedBatch) -> tuple[float, ...]:
        """The times (s) at which fewer records may repeat an entry than before; the last is when none may."""
        return self.untimed_until(entry), entry.since + self.window

    def times_agree(self, entry: UnconfirmedBatch, ours: Digest, theirs: Digest, now: float) -> bool:
        """Whether the timestamps of an unconfirmed record and of one that equals it allow that they are one."""
        if have_same_time(ours, theirs):
            return True
        if entry.timed_only or entry.late_here:
            return False
        untimed = UNTIMED in (ours.timestamp_ms, theirs.timestamp_ms)
        if untimed or (self.renews_timestamps and not entry.sure):
            return now < self.untimed_until(entry)
        return entry.sure

    def is_of_another_program(self, left: Origin, now_used: Origin) -> bool:
        """Whether two programs of one name have the connection that left a record, and the one now used.

        Their software is different. Or both connections are to one broker and were open at the same time: over the
        older one a response arrived that was given when the other one was in use, or a request that no end followed. A
        client with one connection for each broker closes it before it opens the next; what arrives at a closed one is
        not acknowledged. A request may arrive late, so that only the one at hand shows that the connection now used is
        open.
        """
        if left is now_used:
            return False
        if "" not in (left.software.name, now_used.software.name) and left.software != now_used.software:
            return True
        if self.pools_connections or left.node_id != now_used.node_id or not (left.is_direct and now_used.is_direct):
            return False
        older, newer = sorted((left, now_used), key=lambda one: one.opened_at)
        if older.open_at > newer.opened_at or older.heard_at > newer.first_at:
            return True
        return older is now_used and older.asked_at > newer.first_at

    def newest_first(self) -> bool:
        """Whether the newest of equal records is matched first: responses are read in order, so it is missing."""
        return True

    def across_order(self) -> bool:
        """A record that equals an unconfirmed one is matched with it even if others of its batch are not in order."""
        return True

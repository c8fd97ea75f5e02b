"""The invariants, named; each is checked against the logs after a run.

Some of it nobody could promise, and is not judged (the semantics page says so):

- Equal records without timestamps of their own, or of a client that renews them, from a producer that lost a response
  or whose kproxy was killed, may be treated as one. So may those of two processes of one name, one of which lost a
  response.
- A record was matched with an equal one of another timestamp, whose response was surely not received. That one is
  retried after kproxy was killed, or at another one: then nobody knows which of them was answered.
- A record was retried after its kproxy was killed, or at another one, and lies before the last batches of its producer.
- A half-open connection of a client can't be told from a live one, so that its retries may be written twice.
- Two equal records with equal timestamps, of an idempotent client that raises its epoch: it may have a success for one.
- Brokers forget producers, and that they are fenced, for old timestamps.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kproxy.codec.batch import Record, iter_records, read_header
from kproxy.testing.fake_broker import FakeCluster
from verification.simulation.contents import Content, content_of
from verification.simulation.history import History, Place, Sent, State
from verification.simulation.plan import PARTITIONS, TOPIC, Relay


class Judged(NamedTuple):
    """Contents that were sent and groups of equal ones, and how many of them nobody can judge."""

    values: int
    #: A second copy of these is excused.
    excused_copies: int
    groups: int
    #: That one of these was taken for another is excused.
    excused_merges: int


LOST = "no acknowledged record is lost"
DUPLICATE = "no retry is written twice"
ORDER = "order is kept per partition and producer"
MERGED = "no identical record is merged"
OFFSETS = "offsets answered hold the record"
MEMORY = "memory is bounded"
ANSWERED = "every request is answered"
AWAKE = "nobody waits for what has happened"
LEAKED = "nothing is left at the end"
CAUSE = "no error without a cause"
FAILED = "kproxy does not fail"
UNANSWERED = "what wants no answer is written"
ALTERED = "a record is written as it was sent"
NOT_LOST = "no record is reported as lost that the log holds"

INVARIANTS = (
    LOST,
    ALTERED,
    DUPLICATE,
    ORDER,
    MERGED,
    OFFSETS,
    MEMORY,
    ANSWERED,
    AWAKE,
    LEAKED,
    CAUSE,
    FAILED,
    UNANSWERED,
    NOT_LOST,
)

_CONTROL = 0x20
#: The records of a former or another kproxy that one reads: the last batches of a producer id, or those of the last
#: seconds if that is more.
_TAIL_BATCHES = 5
_TAIL_MS = 2000
#: So often a client has to return to an older connection at another instance to be taken for two.
_IN_USE_AT_TWO = 2
#: ``clean.close.window.ms`` of connections with a PROXY protocol header, and what clocks and latency may take of it.
_AUTOMATIC_WINDOW = 9.0

Log = dict[int, Content]
"""Records by offset."""


def read_logs(cluster: FakeCluster) -> list[Log]:
    """The records in each partition."""
    return [_read(partition.log) for partition in cluster.topics[TOPIC].partitions]


def _read(log: object) -> Log:
    return {record.offset: content_of(record) for record in _records(log)}


def _records(log: object) -> Iterator[Record]:
    for stored in log._batches:  # type: ignore[attr-defined]
        if not read_header(stored.data).attributes & _CONTROL:
            yield from iter_records(stored.data, max_decompressed_bytes=1 << 20)


def read_outlived(cluster: FakeCluster) -> set[Place]:
    """Records that were written under an epoch though its producer had a newer one in the log."""
    found: set[Place] = set()
    for number, partition in enumerate(cluster.topics[TOPIC].partitions):
        epochs: dict[int, int] = {}
        for stored in partition.log._batches:
            header = read_header(stored.data)
            newest = epochs[header.producer_id] = max(epochs.get(header.producer_id, -1), header.producer_epoch)
            if header.producer_epoch < newest:
                records = iter_records(stored.data, max_decompressed_bytes=1 << 20)
                found |= {(number, content_of(record)) for record in records}
    return found


def read_aged_out(cluster: FakeCluster) -> set[Place]:
    """Records of producers that a broker has forgotten, for the age of their records."""
    found: set[Place] = set()
    for number, partition in enumerate(cluster.topics[TOPIC].partitions):
        for stored in partition.log._batches:
            if read_header(stored.data).producer_id in partition.log.producers.expired:
                records = iter_records(stored.data, max_decompressed_bytes=1 << 20)
                found |= {(number, content_of(record)) for record in records}
    return found


def read_retold(cluster: FakeCluster, history: History) -> set[Place]:
    """Reads ``History.retold`` from the logs."""
    found: set[Place] = set()
    for number, partition in enumerate(cluster.topics[TOPIC].partitions):
        told = [sent for sent in history.records if sent.partition == number and sent.state is State.OK]
        times = {
            record.offset: (content_of(record), record.timestamp)
            for stored in partition.log._batches
            for record in iter_records(stored.data, max_decompressed_bytes=1 << 20)
        }
        for sent in told:
            # One that was matched with another in a request with new records receives no offset.
            where = times.values() if sent.offset < 0 else [times.get(sent.offset, (None, -1))]
            stamps = {timestamp for content, timestamp in where if content == sent.content}
            if stamps and sent.timestamp not in stamps and _is_resumed(history, sent, stamps):
                found.add(sent.place)
    return found


def _is_resumed(history: History, sent: Sent, stamps: set[int]) -> bool:
    """Whether an equal record with one of the timestamps was retried where nobody knew that ``sent`` was answered."""
    equal = history.sent.get((sent.place, sent.client.client_id, sent.client.host), ())
    return any(other.timestamp in stamps and other.resumed_at > sent.answered_at for other in equal)


def read_buried(cluster: FakeCluster) -> dict[Place, set[int]]:
    """Reads ``History.buried`` from the logs."""
    found: dict[Place, set[int]] = defaultdict(set)
    for number, partition in enumerate(cluster.topics[TOPIC].partitions):
        times: dict[int, list[int]] = defaultdict(list)
        places: dict[Content, list[tuple[tuple[int, int], int, int]]] = defaultdict(list)
        for stored in partition.log._batches:
            header = read_header(stored.data)
            if header.attributes & _CONTROL:
                continue
            writer, mine = (header.producer_id, header.producer_epoch), times[header.producer_id]
            for record in iter_records(stored.data, max_decompressed_bytes=1 << 20):
                content = content_of(record)
                for other, at, offset in places[content]:
                    if other != writer and _is_buried(times[other[0]], at):
                        found[number, content].add(offset)
                places[content].append((writer, len(mine), record.offset))
            mine.append(header.max_timestamp)
    return dict(found)


def _is_buried(times: Sequence[int], at: int) -> bool:
    """Whether a batch precedes the last batches of its producer id, and those of the last seconds; by their times."""
    return any(time < max(times) - _TAIL_MS for time in times[at : max(at, len(times) - _TAIL_BATCHES)])


def altered(cluster: FakeCluster, history: History) -> Iterator[tuple[str, str]]:
    """Records in the log whose key, headers or timestamp are none that a record with their value was sent with.

    Without timestamps of the client (format 0, LogAppendTime) kproxy or the broker gives them, which is not judged.
    """
    untimed = {sent.place for sent in history.records if not sent.client.magic}
    for number, partition in enumerate(cluster.topics[TOPIC].partitions):
        for record in _records(partition.log):
            place = number, content_of(record)
            stamps = history.stamps.get(place)
            if stamps is None:
                yield ALTERED, f"{place[1]} in partition {number} was never sent with this key and these headers"
            elif not (history.untimed or place in untimed or record.timestamp in stamps):
                yield ALTERED, f"{place[1]} in partition {number} has the time {record.timestamp}, which was never sent"


def broken(history: History, logs: list[Log]) -> Iterator[tuple[str, str]]:
    """The invariants that are broken, and how: the gravest first."""
    if history.broken is not None:
        yield history.broken
    lives = [*history.deleted, logs]
    for partition in range(max(len(life) for life in lives)):
        records = [sent for sent in history.records if sent.partition == partition]
        written = [life[partition] if partition < len(life) else {} for life in lives]
        written[-1] = {**history.compacted.get(partition, {}), **written[-1]}
        yield from _counts(history, partition, written, records)
        if len(lives) == 1:
            yield from _offsets(history, written[0], records)
        yield from _order(history, partition, written, records)


def _counts(history: History, partition: int, lives: list[Log], records: list[Sent]) -> Iterator[tuple[str, str]]:
    """Checks copies. Of a topic that was deleted, each acknowledged record was written to one of the two."""
    held = Counter(content for log in lives for content in log.values())
    most = {one: max(Counter(log.values())[one] for log in lives) for one in held} if len(lives) > 1 else held
    by_content: dict[Content, list[Sent]] = defaultdict(list)
    for sent in records:
        by_content[sent.content].append(sent)
    for content, sents in by_content.items():
        states = Counter(sent.state for sent in sents)
        ok, unknown, count = states[State.OK], states[State.OPEN], held[content]
        text = f"{content} in partition {partition}: {count} in the log, {ok} acknowledged, {unknown} unknown"
        if ok and not count:
            yield LOST, text
        elif count < ok - (mergeable := _mergeable(history, sents)):
            yield MERGED, text
        elif count < ok + len(_silent(history, sents)) - mergeable and len(lives) == 1:
            yield UNANSWERED, text
        elif most.get(content, 0) > ok + unknown and not _copies_unseen(history, sents):
            yield DUPLICATE, text


def judged(history: History) -> Judged:
    """The share of a run that can't break the two invariants of copies."""
    values: dict[Place, list[Sent]] = defaultdict(list)
    for sent in history.records:
        if sent.tries:
            values[sent.place].append(sent)
    equal = [sents for sents in values.values() if len(sents) > 1]
    return Judged(
        len(values),
        sum(_copies_unseen(history, sents) for sents in values.values()),
        len(equal),
        sum(_mergeable(history, sents) > 0 for sents in equal),
    )


def _copies_unseen(history: History, sents: list[Sent]) -> bool:
    """Whether nobody can see that a connection has ended, or what was written long before kproxy was killed or left.

    Or a broker forgot for old timestamps that a producer was fenced, or what it had written before kproxy was killed.
    """
    if _are_mixed_up(history, sents):
        return True
    return any(_is_unseen(history, sent) or (sent.client.age and _is_forgotten(history, sent)) for sent in sents)


def _is_forgotten(history: History, sent: Sent) -> bool:
    return sent.place in history.outlived or (sent.resumed_at >= 0 and sent.place in history.aged_out)


def _are_mixed_up(history: History, sents: list[Sent]) -> bool:
    """Whether of two records that nothing distinguishes one was refused, and the other one written and repeated.

    The next request may be the retry of either. For granted is taken that it is written.
    """
    return any(
        one is not other and (one.timestamp == other.timestamp or not history.is_timed(one.client))
        for one in sents
        if one.beside
        for other in sents
        if other.refused
    )


def _is_unseen(history: History, sent: Sent) -> bool:
    """A buried copy is excused if it is the one that the client was not told of: its retry was written.

    Not where the client's timestamps can be compared: these are recognised however far back. Nor are timestamps missed
    where a client has connections in use at two instances: without them it may as well be two programs. Nor where a
    program stood still: for granted is taken that who sends something has read what had arrived a second before.
    """
    if sent.client.numbered:
        return False
    if _is_beyond_relay(history, sent):
        return True
    untimed = not history.is_timed(sent.client)
    stood_still = sent.client.number in history.stood_still
    at_two = history.returned[sent.client.number] >= _IN_USE_AT_TWO
    if untimed and len(sent.attempts) > 1 and (stood_still or at_two):
        return True
    buried = history.buried.get(sent.place) if untimed else None
    if buried is None:
        buried = {sent.offset}
    if sent.resumed_at >= 0 and untimed and sent.beside:
        return True  # its client received the success, beside an error, and repeated the whole request
    return sent.unseen or (sent.resumed_at >= 0 and sent.offset not in buried)


def _is_beyond_relay(history: History, sent: Sent) -> bool:
    """Whether a record without a timestamp of its own was retried through a balancer that closed in good order.

    For granted is taken that kproxy can't know of a balancer that nobody has declared, and need not compare for longer
    than the option says.
    """
    client = sent.client
    if client.relay is Relay.NONE or history.is_timed(sent.client) or len(sent.attempts) < 2 or history.declared:
        return False
    took = sent.attempts[-1].arrives - sent.attempts[0].arrives
    return client.relay is Relay.UNKNOWN or took >= _AUTOMATIC_WINDOW


def _silent(history: History, sents: list[Sent]) -> list[Sent]:
    """Records without a response (acks=0) that came in on a connection to which nothing happened."""
    return [
        sent
        for sent in sents
        if sent.client.acks == 0
        and sent.state is State.OPEN
        and sent.client.number not in history.troubled
        and sent.partition < PARTITIONS
    ]


def _mergeable(history: History, sents: list[Sent]) -> int:
    """The number of records in a group of equal ones that kproxy may answer without writing them.

    These are records that came while an equal one was in doubt, and whose timestamps are those of another of the group,
    or unknown. For granted is taken that a record with a timestamp of its own is never a retry of one with another. One
    of another process of the name is, if that surely had no success: its own retry may bear another time.
    """
    if history.strict:
        return 0
    may = [sent for sent in sents if sent.is_mergeable or sent.client.raises]
    if not may:
        return 0
    if any(sent.place in history.retold for sent in sents):
        return len(sents)
    alone = len({sent.client.number for sent in sents}) == 1
    if not alone and any(sent.shaken for sent in sents):
        return len(may)
    stamps = Counter(sent.timestamp for sent in sents)
    if not all(history.is_timed(sent.client) for sent in sents):
        return len(may)
    return sum(stamps[sent.timestamp] > 1 for sent in may)


def _offsets(history: History, log: Log, records: list[Sent]) -> Iterator[tuple[str, str]]:
    given: dict[int, list[Sent]] = defaultdict(list)
    for sent in records:
        if sent.state is State.OK and sent.offset >= 0:
            given[sent.offset].append(sent)
            if log.get(sent.offset) != sent.content:
                yield OFFSETS, f"{sent.content} is not at {sent.offset} of partition {sent.partition}"
    for offset, sents in given.items():
        # records that nothing tells apart may change places: how many of them are in the log is judged elsewhere
        alike = len({sent.timestamp for sent in sents}) == 1 and all(history.is_timed(sent.client) for sent in sents)
        if not alike and len(sents) - 1 > _mergeable(history, sents):
            yield MERGED, f"{len(sents)} records {sents[0].content} were answered with offset {offset}"


def _order(history: History, partition: int, lives: list[Log], records: list[Sent]) -> Iterator[tuple[str, str]]:
    """Checks the order of clients that wait for each response and share their identity with nobody.

    Of others at least what was acknowledged when it was first sent.
    """
    places = {content: (life, offset) for life, log in enumerate(lives) for offset, content in log.items()}
    counts = Counter(sent.content for sent in records)
    clients = {sent.client.number: sent.client for sent in records}
    distinct = {
        one
        for one, count in counts.items()
        if count == 1 or (history.single and not _mergeable(history, [sent for sent in records if sent.content == one]))
    }
    for number, client in clients.items():
        twins = [
            other for other in clients.values() if (other.client_id, other.host) == (client.client_id, client.host)
        ]
        pipelines = client.depth > 1 or len(twins) > 1
        if client.acks == 0 or (pipelines and client.age):  # a forgotten producer may begin anywhere
            continue
        mine = [
            sent
            for sent in records
            if sent.client.number == number
            and sent.state is State.OK
            and not (_is_unseen(history, sent) or sent.held_up)
        ]
        if pipelines and not (client.in_rounds and len(twins) == 1):
            mine = sorted((sent for sent in mine if sent.tries == 1), key=lambda sent: sent.nth)
        elif client.ready or client.in_rounds:  # what it had ready is acknowledged before what precedes it
            mine.sort(key=lambda sent: sent.nth)
        else:
            mine.sort(key=lambda sent: sent.order)
        # where a forgotten fence let a copy through, what was answered says where the record itself is
        copied = {sent.content for sent in mine if client.age and sent.place in history.outlived}
        unique = [sent for sent in mine if counts[sent.content] == 1 and sent.content in places.keys() - copied]
        answered = [sent for sent in mine if sent.offset >= 0 and sent.content in distinct] if len(lives) == 1 else []
        for ordered, where in (
            (unique, [places[s.content] for s in unique]),
            (answered, [(0, s.offset) for s in answered]),
        ):
            for at in range(1, len(ordered)):
                if where[at] <= where[at - 1]:
                    one, two = ordered[at - 1].content, ordered[at].content
                    yield (
                        ORDER,
                        f"client {number} had {one} acknowledged before {two}, in partition {partition} it is behind",
                    )

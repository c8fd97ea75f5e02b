"""Rules out, by its timestamps and at most its first record, that a batch repeats unconfirmed records.

A producer that returns after a clean end leaves batches unconfirmed until ``retry.window.ms`` has passed. A comparison
of every record with them costs several times what the relay of a batch costs. Clients send retries before new records,
so a connection is compared in full first (``Rules.settled_requests``), and with a ``QuickCheck`` from then on.
"""

from collections.abc import Collection
from dataclasses import dataclass
from struct import Struct
from typing import Final

from kproxy.budget import AT_ONCE_BYTES, READ_RECORD_STEPS, is_long
from kproxy.codec.batch import HEADER_SIZE
from kproxy.codec.batch_reader import least_timestamp
from kproxy.codec.records import LOG_APPEND_TIME
from kproxy.dedup.batch_records import first_content
from kproxy.dedup.digest import UNTIMED
from kproxy.dedup.lanes import TrackKey
from kproxy.dedup.producer_connection import ProducerConnection
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import UnconfirmedBatch
from kproxy.errors import RemoteProtocolError

#: Of a batch header: magic, attributes, base timestamp (of the first record), max timestamp, record count.
_HEADER: Final = Struct(">16xb4xh4xqq14xi")
_ANOTHER_TIME: Final = -2


@dataclass(frozen=True, slots=True)
class QuickCheck:
    """The unconfirmed records on one partition for one connection. Timestamps in ms."""

    oldest_ms: int
    newest_ms: int
    #: Contents (``Digest.content``) that are a repeat whatever the client's timestamp is. None: a first record shows
    #: nothing, since of such a batch records were taken by others that equal them: its retry may begin with these.
    at_any_time: frozenset[bytes] | None
    #: Contents that a record without a timestamp may repeat; None as above.
    untimed: frozenset[bytes] | None
    #: A batch may hold older records than its first one, and they count. Not so where all connections ended in good
    #: order after the responses: no retry is expected, and a header has to do, so that such an end costs nothing.
    thorough: bool
    #: When the check has to be rebuilt, in seconds: fewer records can be repeated from then on.
    until: float

    @classmethod
    def of(cls, entries: Collection[UnconfirmedBatch], rules: Rules, now: float) -> "QuickCheck | None":
        """The check for these entries; None while one of them is not read back."""
        times: list[int] = []
        at_any_time: set[bytes] = set()
        untimed: set[bytes] = set()
        is_part_at_any_time = is_part_untimed = False
        for entry in entries:
            if entry.digests is None:
                return None
            for digest in entry.digests:
                if digest.timestamp_ms != UNTIMED:
                    times.append(digest.timestamp_ms)
                if rules.times_agree(entry, digest, digest._replace(timestamp_ms=_ANOTHER_TIME), now):
                    at_any_time.add(digest.content)
                    is_part_at_any_time |= entry.is_part
                if rules.times_agree(entry, digest, digest._replace(timestamp_ms=UNTIMED), now):
                    untimed.add(digest.content)
                    is_part_untimed |= entry.is_part
        thorough = not all(rules.is_answered(entry) for entry in entries)
        until = min(ends for entry in entries for ends in rules.ends_of(entry) if ends > now)
        oldest, newest = (min(times), max(times)) if times else (0, -1)
        timed_contents = None if is_part_at_any_time else frozenset(at_any_time)
        untimed_contents = None if is_part_untimed else frozenset(untimed)
        return cls(oldest, newest, timed_contents, untimed_contents, thorough, until)

    def clears(
        self, data: bytearray | memoryview, arrival_ms: int | None = None, start: int = 0, end: int | None = None
    ) -> bool:
        """Whether no record of a batch, ``data[start:end]``, needs to be compared.

        False also for what is no whole batch of format v2, and for what would take long to look at.
        ``arrival_ms``: see ``read_batch``. A ``start`` of -1: there is none (``PartitionData``).
        """
        if end is None:
            end = len(data)
        if start < 0 or end - start < HEADER_SIZE:
            return False
        magic, attributes, base, latest, count = _HEADER.unpack_from(data, start)
        if magic != 2:
            return False
        timed = base not in (UNTIMED, arrival_ms) and not attributes & LOG_APPEND_TIME
        if timed and not base <= latest < self.oldest_ms:  # else all are older
            if base <= self.newest_ms:
                return False
            is_read = self.thorough and count > 1
            if is_read and (is_long(count * READ_RECORD_STEPS) or not self._is_newer(memoryview(data)[start:end])):
                return False
        contents = self.at_any_time if timed else self.untimed
        if contents is None:
            return False
        if not contents:
            return True
        first = first_content(memoryview(data)[start:end], AT_ONCE_BYTES)
        return first is not None and first not in contents

    def _is_newer(self, batch: memoryview) -> bool:
        """Whether all records of a batch are newer than the unconfirmed ones."""
        try:
            return least_timestamp(batch, AT_ONCE_BYTES) > self.newest_ms
        except RemoteProtocolError:
            return False


class QuickChecks:
    """The checks of one producer's connections, by partition."""

    def __init__(self, rules: Rules) -> None:
        """None yet."""
        self._rules = rules
        #: Requests in a row that were compared in full and repeated nothing.
        self._compared: dict[TrackKey, dict[ProducerConnection, int]] = {}
        self._checks: dict[TrackKey, dict[ProducerConnection, QuickCheck]] = {}

    def keys(self) -> Collection[TrackKey]:
        """The partitions on which requests were compared since a batch there was last unconfirmed."""
        return self._compared.keys()

    def of(self, member: ProducerConnection, key: TrackKey, now: float) -> QuickCheck | None:
        """The check of a connection for a partition, if there is one that still holds."""
        checks = self._checks.get(key)
        check = checks.get(member) if checks else None
        return check if check is not None and now < check.until else None

    def compared(
        self,
        member: ProducerConnection,
        key: TrackKey,
        entries: Collection[UnconfirmedBatch],
        *,
        repeated: bool,
        now: float,
    ) -> QuickCheck | None:
        """Records that a request was compared with the entries on a partition, and whether it repeated any of them.

        Returns the check that the connection has now, if any.
        """
        counts = self._compared.setdefault(key, {})
        counts[member] = 0 if repeated else counts.get(member, 0) + 1
        check = None
        if counts[member] >= self._rules.settled_requests(member.ledger.depth):
            check = QuickCheck.of(entries, self._rules, now)
        if check is not None:
            self._checks.setdefault(key, {})[member] = check
        elif key in self._checks:
            self._checks[key].pop(member, None)
        return check

    def end(self, member: ProducerConnection, key: TrackKey) -> None:
        """Ends the check of a connection on a partition, since it may repeat another batch there."""
        for kept in (self._compared.get(key), self._checks.get(key)):
            if kept is not None:
                kept.pop(member, None)

    def reset(self, key: TrackKey) -> None:
        """Ends all checks on a partition, since another batch there is unconfirmed."""
        self._compared.pop(key, None)
        self._checks.pop(key, None)

"""One Fetch whose records kproxy has to examine: what to ask the broker, and when to answer the client what.

- Hidden batches: ``kproxy.txn.visibility``. Where a response holds nothing else, kproxy reads on until the client's
  ``max_wait_ms`` has passed, one response at a time, so that memory stays bounded. After that, clients known to skip a
  marker get one; for others kproxy remembers the position, because they ask again from the old offset.
- The last stable offset in a response is that of ``kproxy.txn.last_stable``, which never falls. If the reader is not at
  the end, a response sometimes waits until more is known of it.
- At an undecided batch the partition waits for its decision, and is not read again before; the others are read in
  between. A response with an empty batch would make clients stall or repeat (sarama 1.19, kafka-go), so none has one.
"""

from collections.abc import Collection, Mapping
from typing import Final

from kproxy.budget import BATCH_STEPS, RequestBudget
from kproxy.codec._generated.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponseFetchableTopicResponse,
    FetchResponsePartitionData,
)
from kproxy.codec.batch_reader import end_of_first
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.proxy.context import Context, Passed
from kproxy.proxy.handlers.base import Again, AsItIs, Lowered, Park, Restated, Stable
from kproxy.proxy.handlers.control_batches import may_end_with_marker, skips_control_batches
from kproxy.proxy.handlers.fetch_questions import FetchQuestions, Part
from kproxy.proxy.handlers.fetch_rows import (
    FIRST_V2,
    Records,
    leave_unsayable,
    name_error,
    partition_errors,
    readable,
    ref,
)
from kproxy.proxy.handlers.isolation import Isolation
from kproxy.proxy.routing import is_own_topic
from kproxy.txn.last_stable import UNKNOWN, Question, Row
from kproxy.txn.verdict import Decisions, NothingKnown, Verdict
from kproxy.txn.visibility import Aborted, Seen, marker, visible

#: While partitions wait for a decision, the others are read at this interval (seconds).
_LOOK_SECONDS: Final = 0.05
#: So long a response waits at most for what is known of last stable offsets (seconds).
_STABLE_SECONDS: Final = 0.5
#: Batches of each partition that are looked through at least; and the fewest bytes that an entry or batch has.
_LEAST_BATCHES: Final = 8
_SHORTEST_BATCH: Final = 26
#: Places that are remembered for one connection.
_MOST_PASSED: Final = 10_000


class FetchReading:
    """The course of one request."""

    def __init__(self, ctx: Context, request: FetchRequest, version: int, isolation: Isolation) -> None:
        """``version`` is the client's; begins at ``ctx.now``."""
        self._ctx = ctx
        self._max_wait_ms = request.max_wait_ms
        self._version = version
        self._isolation = isolation
        self._decisions: Decisions = NothingKnown() if ctx.services.decisions is None else ctx.services.decisions
        #: Whether the client skips control batches by itself.
        self._skips = skips_control_batches(ctx)
        self._may_end_with_marker = version >= FIRST_V2 and may_end_with_marker(ctx, version, request.session_epoch)
        self._deadline = ctx.now + (request.max_wait_ms / 1000 if request.min_bytes > 0 else 0)
        self._look_at = self._deadline
        self._parts: dict[TopicPartition, Part] = {}
        for topic in request.topics:
            name = topic.topic or ctx.cluster.topic_names.get(topic.topic_id, "")
            for row in topic.partitions:
                self._parts[ref(topic), row.partition] = Part(topic, name, row, row.fetch_offset)
        self._questions = FetchQuestions(
            request, self._parts, version=version, level=isolation.level, max_bytes=ctx.policy.fetch_max_bytes
        )
        #: The broker was asked for all partitions, and to wait for data.
        self._waits_there = False
        #: The broker's response is not the client's, to the byte, but for last stable offsets.
        self._changed = False
        #: The same of these.
        self._restated = False
        #: What is asked for before the client is answered.
        self._question: Question | None = None
        self._response = FetchResponse()

    @property
    def unnamed(self) -> list[bytes]:
        """The ids of topics whose names have to be known first."""
        if not self._isolation.filtered:
            return []
        return list(dict.fromkeys(part.topic.topic_id for part in self._parts.values() if not part.name))

    def name_topics(self) -> None:
        """Takes the names that are known now."""
        for part in self._parts.values():
            part.name = part.name or self._ctx.cluster.topic_names.get(part.topic.topic_id, "")

    def position(self, topic: str, partition: int) -> int:
        """From where on the records of a partition are wanted (``ref`` names its topic)."""
        part = self._parts.get((topic, partition))
        return 0 if part is None else part.position

    # -- towards the broker

    def first(self) -> FetchRequest:
        """The first request: the client's own, without a session and bounded; begins after known hidden batches."""
        limited = set()
        for key, part in self._parts.items():
            passed = self._ctx.fetched.passed.get(key)
            if passed is None or (passed.start, passed.level) != (part.start, self._isolation.level):
                continue
            part.position, part.undecided, part.least_end = passed.next_offset, passed.undecided, passed.high_watermark
            if self._waits(part):
                limited.add(key)
            else:
                part.undecided = None
        wait_ms = 0 if limited else self._max_wait_ms
        self._waits_there = wait_ms > 0
        return self._questions.first(wait_ms, limited)

    def _ask(self, keys: Collection[TopicPartition], wait_ms: int) -> Again:
        self._waits_there = wait_ms > 0 and len(keys) == len(self._parts)
        for key in keys:
            self._parts[key].ahead = self._parts[key].loud = False
        return Again(self._questions.ask(keys, wait_ms))

    # -- from the broker

    def bound(self, response: FetchResponse, budget: RequestBudget) -> None:
        """Leaves out what would take long to look through; the client, or kproxy, asks for it next.

        Of one response about 6,000 batches are looked through, on the loop: verdicts change there.
        """
        rows = [row for topic in response.responses for row in topic.partitions if row.records]
        most = max(_LEAST_BATCHES, budget.on_loop().steps // BATCH_STEPS // max(1, len(rows)))
        for row in rows:
            records = row.records or b""
            if len(records) <= most * _SHORTEST_BATCH:
                continue
            end = end_of_first(records, most)
            if end < len(records):
                row.records, self._changed = memoryview(records)[:end], True

    def take(self, response: FetchResponse, same_version: bool, budget: RequestBudget) -> Lowered:
        """The broker's response; ``same_version``: it is in the client's version."""
        self._response = response
        self.bound(response, budget)
        self._changed = self._changed or not same_version or bool(response.node_endpoints)
        for topic in response.responses:
            for row in topic.partitions:
                part = self._parts.get((ref(topic), row.partition_index))
                if part is not None:
                    self._take_row(part, row, budget)
        return self._go_on()

    def _take_row(self, part: Part, row: FetchResponsePartitionData, budget: RequestBudget) -> None:
        name_error(row, self._version)
        part.row, part.ahead = row, False
        if self._is_another_log(part, row):
            part.position, part.undecided, part.least_end = part.start, None, -1
            part.decided, part.ahead, part.loud = part.start, True, False
            row.error_code, row.records, self._changed = ErrorCode.NONE, b"", True
            return
        if self._isolation.filtered and not part.name and not row.error_code:
            row.error_code, row.records, self._changed = ErrorCode.UNKNOWN_TOPIC_ID, b"", True
        data = row.records or b""
        if not row.error_code and data:
            with partition_errors(row):
                row.records = self._look_through(part, row, data, budget)
        else:
            row.records = row.records or b""
            part.decided = part.position
        self._changed = self._changed or bool(data and row.records is not data)
        elsewhere = row.preferred_read_replica >= 0 or row.diverging_epoch.epoch >= 0
        part.loud = bool(row.records or row.error_code or elsewhere)

    @staticmethod
    def _is_another_log(part: Part, row: FetchResponsePartitionData) -> bool:
        """Whether the topic was created again, or truncated, since kproxy noted what it may pass over."""
        if part.position <= part.start:
            return False
        return row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or (
            not row.error_code and 0 <= row.high_watermark < part.least_end
        )

    def _look_through(
        self, part: Part, row: FetchResponsePartitionData, data: Records, budget: RequestBudget
    ) -> Records:
        seen = Seen(part.position, [data])
        # batches of kproxy's own topics carry its producer ids, but are part of no transaction
        judged = self._isolation.filtered and not is_own_topic(part.name)
        if judged or not self._skips:
            aborted = [Aborted(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
            seen = visible(
                data,
                topic=part.name,
                partition=row.partition_index,
                first_offset=part.position,
                aborted=aborted,
                decisions=self._decisions if judged else None,
                reads_natively=self._reads_natively,
            )
            if seen.changed:
                data = b"".join(seen.pieces)
                self._ctx.fetched.hidden_bytes += seen.hidden_bytes
            if aborted and (seen.changed or not self._reads_natively):
                row.aborted_transactions, self._changed = [], True
        part.undecided = seen.undecided
        if seen.undecided is not None:
            self._decisions.met(seen.undecided.producer_id, part.name, row.partition_index, seen.next_offset)
        part.decided = seen.next_offset
        if seen.leader_epoch >= 0:
            part.leader_epoch = seen.leader_epoch
        if data:
            data, behind = readable(self._ctx, self._version, data, part.position, budget)
            seen.next_offset = max(seen.next_offset, behind)
        if not data:
            part.ahead = seen.next_offset > part.position and seen.undecided is None
            part.position = max(part.position, seen.next_offset)
        return data

    # -- what next

    def _go_on(self) -> Lowered:
        ctx, parts = self._ctx, self._parts
        if self._response.error_code or any(part.loud for part in parts.values()):
            return self._answer()
        ahead = [key for key, part in parts.items() if part.ahead]
        if ctx.now >= self._deadline or (not ahead and self._may_answer()):
            return self._answer()
        self._changed = True
        if ahead:
            return self._ask(ahead, 0)
        if any(self._waits(part) for part in parts.values()):
            return self._park()
        return self._ask(parts, max(1, round((self._deadline - ctx.now) * 1000)))

    def _may_answer(self) -> bool:
        """Whether there is something to tell after all, or the broker waited in vain."""
        if self._may_end_with_marker and any(part.position > part.start for part in self._parts.values()):
            return True
        return self._waits_there and not any(self._waits(part) for part in self._parts.values())

    def _park(self) -> Park:
        others = any(part.undecided is None for part in self._parts.values())
        self._look_at = min(self._deadline, self._ctx.now + _LOOK_SECONDS) if others else self._deadline
        return Park(self._look_at)

    def resume(self, told: Mapping[TopicPartition, int | None]) -> Lowered:
        """Continues when something was decided or is known, or the time has come."""
        if self._question is not None:
            if all(stable is None for stable in told.values()):
                self._ctx.services.stable.failed(self._question, self._ctx.now)
            return self._say()
        decided = False
        for part in self._parts.values():
            if part.undecided is not None and not self._waits(part):
                part.undecided, decided = None, True
        others = [key for key, part in self._parts.items() if part.undecided is None]
        if decided:
            return self._ask(others, 0)
        if self._ctx.now >= self._deadline:
            return self._answer()
        return Park(self._look_at) if self._ctx.now < self._look_at else self._ask(others, 0)

    def _waits(self, part: Part) -> bool:
        return part.undecided is not None and self._decisions.verdict(*part.undecided) is Verdict.UNDECIDED

    # -- towards the client

    @property
    def _reads_natively(self) -> bool:
        """Whether the client is known to leave out what Kafka's own transactions aborted, and asked for that."""
        return self._isolation.as_asked and self._skips

    def _finish(self, key: TopicPartition, part: Part, row: FetchResponsePartitionData) -> None:
        """Completes the row of a partition, and remembers what its client can't be told."""
        if self._version < FIRST_V2:
            row.aborted_transactions = []
        passed = self._ctx.fetched.passed
        passed.pop(key, None)
        if row.error_code:
            return
        start, empty = part.start, not row.records
        if empty and part.position > start and part.leader_epoch >= 0 and self._may_end_with_marker:
            start, row.records, self._changed = part.position, bytes(marker(part.position, part.leader_epoch)), True
        if empty and (part.undecided is not None or part.position > start):
            if len(passed) >= _MOST_PASSED:
                passed.clear()
            passed[key] = Passed(start, part.position, part.undecided, self._isolation.level, row.high_watermark)
        self._state_stable(part, row)
        if self._isolation.filtered and row.last_stable_offset >= 0:
            self._ctx.fetched.stable_lags[part.name, row.partition_index] = row.high_watermark - row.last_stable_offset
        if self._version < FIRST_V2:
            self._end_for_old(part, row)

    def _state_stable(self, part: Part, row: FetchResponsePartitionData) -> None:
        """States the last stable offset: what is certain of it, or that it is not known."""
        if self._states(part):
            stable = self._ctx.services.stable.reported((part.name, row.partition_index))
        elif part.undecided is not None:
            stable = part.decided
        else:
            return
        self._restated = self._restated or stable != row.last_stable_offset
        row.last_stable_offset = stable

    def _states(self, part: Part) -> bool:
        """Whether the last stable offset is more than the broker's and what is met."""
        judges = self._isolation.filtered and self._ctx.services.decisions is not None and not is_own_topic(part.name)
        return judges and part.row is not None and part.row.high_watermark >= 0

    def _end_for_old(self, part: Part, row: FetchResponsePartitionData) -> None:
        """Old clients read until the high watermark; where nothing visible is left, it is their own offset."""
        end = row.high_watermark
        if self._isolation.filtered and row.last_stable_offset >= 0:
            end = row.last_stable_offset
        elif self._states(part):
            end = part.decided
        row.high_watermark = part.start if not row.records and part.position >= end else end

    def _answer(self) -> Lowered:
        """Answers, if all parts of the response are known."""
        self._question = self._to_ask()
        if self._question is None:
            return self._say()
        self._changed = True
        return Stable(self._question, self._ctx.now + _STABLE_SECONDS)

    def _to_ask(self) -> Question | None:
        """Takes what was looked at; what else has to be known of last stable offsets."""
        stable, rows = self._ctx.services.stable, []
        for part in self._parts.values():
            found = part.row
            if found is None or found.error_code or not self._states(part):
                continue
            end = found.last_stable_offset if found.last_stable_offset >= 0 else found.high_watermark
            row = Row((part.name, found.partition_index), part.start, part.decided, end)
            stable.looked_at(row)
            if part.undecided is None or stable.reported(row.place) == UNKNOWN:
                rows.append(row)
        return None if self._ctx.pipelines else stable.question_for(rows, self._ctx.now)

    def _say(self) -> FetchResponse | AsItIs | Restated:
        response = self._response
        rows: dict[int, FetchResponseFetchableTopicResponse] = {}
        for key, part in self._parts.items():
            if part.row is None:
                continue
            self._finish(key, part, part.row)
            topic = FetchResponseFetchableTopicResponse(topic=part.topic.topic, topic_id=part.topic.topic_id)
            rows.setdefault(id(part.topic), topic).partitions.append(part.row)
        if not self._changed and not self._restated:
            return AsItIs()
        if not self._changed and self._version >= FIRST_V2:
            return Restated([row.last_stable_offset for topic in response.responses for row in topic.partitions])
        response.session_id = 0
        response.responses = list(rows.values())
        leave_unsayable(response, self._version)
        return response

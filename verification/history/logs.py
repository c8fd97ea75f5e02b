"""What a history tells about each partition's log: which values stand where, who wrote them, who read them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from verification.history.operations import Kind, Operation, Outcome

TopicPartition = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True)
class PartitionLog:
    """One partition as all operations together show it."""

    values: dict[int, str] = field(default_factory=dict)
    """By offset; of several values that one offset has, the first that was met."""
    conflicts: dict[int, list[str]] = field(default_factory=dict)
    """Offsets with more than one value, and all of these."""
    writers: dict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    """By value: every operation that sent it, as often as it sent it."""
    offsets: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By value, rising."""
    read: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By value: where the readings that count found it."""
    rank: dict[int, int] = field(default_factory=dict)
    """By offset: how many known offsets are lower. Unlike offsets, ranks have no gaps."""

    def note(self, offset: int, value: str) -> None:
        """Take down that ``value`` stands at ``offset``."""
        known = self.values.setdefault(offset, value)
        if known != value:
            found = self.conflicts.setdefault(offset, [known])
            if value not in found:
                found.append(value)

    def finish(self) -> None:
        """Work out what follows from all that was noted."""
        for index, offset in enumerate(sorted(self.values)):
            self.rank[offset] = index
            for value in self.conflicts.get(offset, (self.values[offset],)):
                self.offsets[value].append(offset)


def build_logs(history: Sequence[Operation]) -> dict[TopicPartition, PartitionLog]:
    """Gather the logs: from acknowledged sends, from transactions that must have been committed, from all polls."""
    logs: dict[TopicPartition, PartitionLog] = defaultdict(PartitionLog)
    only_final = any(operation.final for operation in history)
    for operation in history:
        for send in operation.sends:
            logs[send.topic, send.partition].writers[send.value].append(operation)
        _note_polls(operation, logs, operation.final if only_final else operation.outcome is Outcome.OK)
    for operation in history:
        if operation.sends and must_hold(operation, logs):
            for send in operation.sends:
                if send.offset is not None:
                    logs[send.topic, send.partition].note(send.offset, send.value)
    for log in logs.values():
        log.finish()
    return logs


def _note_polls(operation: Operation, logs: dict[TopicPartition, PartitionLog], counts: bool) -> None:
    for poll in operation.polls:
        log = logs[poll.topic, poll.partition]
        for offset, value in poll.records:
            log.note(offset, value)
            if counts:
                log.read[value].add(offset)


def must_hold(operation: Operation, logs: dict[TopicPartition, PartitionLog]) -> bool:
    """Whether all that an operation sent must be in the log: it is acknowledged, or shows as committed."""
    if operation.outcome is not Outcome.INFO or operation.kind is not Kind.TXN:
        return operation.outcome is Outcome.OK
    return any(send.value in logs[send.topic, send.partition].read for send in operation.sends)

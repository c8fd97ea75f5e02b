"""The offsets of one consumer group in the transaction log; the same for every reader of the log."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kproxy.codec._generated.transaction_offsets import TransactionOffsets, TransactionOffsetsPartition
from kproxy.codec.topic_partition import TopicPartition
from kproxy.txn.ids import Producer
from kproxy.txn.views import Views


class Commit(NamedTuple):
    """One transaction that moved a group's offsets, whose broker may not know it yet."""

    transactional_id: str
    producer: Producer


class Unmirrored(NamedTuple):
    """Offsets of a group that are committed in the log, and those that committed them."""

    offsets: Mapping[TopicPartition, TransactionOffsetsPartition]
    commits: tuple[Commit, ...]
    #: The youngest of the records: the member that the broker may still know.
    newest: TransactionOffsets | None


def unmirrored(views: Views, group_id: str) -> Unmirrored:
    """The committed offsets that the broker's own group may not have yet.

    Within a transactional id the later transaction counts. The logs of two ids have no order between them; there the
    later generation of the group counts, and within one, where a partition has one owner, the larger offset.
    """
    found: dict[TopicPartition, dict[str, tuple[int, TransactionOffsetsPartition]]] = {}
    commits: dict[Commit, None] = {}
    newest: TransactionOffsets | None = None
    for view, producer, record in views.unmirrored_offsets(group_id):
        commits[Commit(view.transactional_id, producer)] = None
        if newest is None or record.generation_id >= newest.generation_id:
            newest = record
        for topic in record.topics:
            for row in topic.partitions:
                by_id = found.setdefault((topic.name, row.index), {})
                by_id[view.transactional_id] = (record.generation_id, row)
    offsets = {place: max(by_id.values(), key=_rank)[1] for place, by_id in found.items()}
    return Unmirrored(offsets, tuple(commits), newest)


def _rank(said: tuple[int, TransactionOffsetsPartition]) -> tuple[int, int]:
    generation, row = said
    return generation, row.offset


def undecided(views: Views, group_id: str) -> set[TopicPartition]:
    """The partitions whose offsets wait for the decision of a transaction."""
    return {
        (topic.name, row.index)
        for _, _, record in views.undecided_offsets(group_id)
        for topic in record.topics
        for row in topic.partitions
    }


def one_of_each_member(records: Iterable[TransactionOffsets]) -> list[TransactionOffsets]:
    """One record for each group, generation and member: to check it once is enough."""
    return list({(*_member(record), record.group_id): record for record in records}.values())


def is_other_generation(record: TransactionOffsets, others: Iterable[TransactionOffsets]) -> bool:
    """Whether a transaction has offsets of the same group already, under another generation or member.

    Those that name none are of any.
    """
    same = [_member(one) for one in (record, *others) if one.group_id == record.group_id and _is_named(one)]
    return _is_named(record) and any(member != same[0] for member in same)


def _is_named(record: TransactionOffsets) -> bool:
    return record.generation_id >= 0 or bool(record.member_id)


def _member(record: TransactionOffsets) -> tuple[int, str, str | None]:
    return record.generation_id, record.member_id, record.group_instance_id

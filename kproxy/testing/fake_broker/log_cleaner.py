"""What a log throws away by itself: retention by age and size, and compaction by key.

Segments are not modelled: retention goes batch by batch, and the caller of compaction says where the active segment
would begin. Rewritten batches look as Kafka's ``MemoryRecords.filterTo`` makes them, measured on 4.3.0: base and last
offset stay, the base timestamp is that of the first record kept, and an emptied batch that is its producer's newest
stays as a bare header with base timestamp -1, so that the producer's sequence outlives a restart.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kproxy.codec.batch import BatchHeader, Record, iter_records, read_header
from kproxy.codec.batch_header import assemble
from kproxy.codec.compression import compress
from kproxy.codec.records import CODEC_MASK, NO_TIMESTAMP
from kproxy.codec.varint import VARINTS
from kproxy.testing.fake_broker.stored_batches import MAX_DECOMPRESSED_BYTES, StoredBatch

_DEFAULT_RETENTION_MS: Final = 7 * 86_400_000
_UNLIMITED: Final = -1


def is_compacted(config: Mapping[str, str]) -> bool:
    """Tell whether a topic's ``cleanup.policy`` has compaction in it."""
    return "compact" in config.get("cleanup.policy", "delete")


def count_expired(batches: Sequence[StoredBatch], config: Mapping[str, str], now: int, high_watermark: int) -> int:
    """Return how many of the oldest batches ``retention.ms`` and ``retention.bytes`` delete at ``now`` (ms).

    Nothing above the high watermark is deleted, and nothing at all unless ``cleanup.policy`` has deletion in it.
    """
    if "delete" not in config.get("cleanup.policy", "delete"):
        return 0
    deletable = sum(batch.last_offset < high_watermark for batch in batches)
    retention_ms = int(config.get("retention.ms", _DEFAULT_RETENTION_MS))
    retention_bytes = int(config.get("retention.bytes", _UNLIMITED))
    count = 0
    if retention_ms != _UNLIMITED:
        while count < deletable and now - batches[count].max_timestamp > retention_ms:
            count += 1
    if retention_bytes != _UNLIMITED:
        excess = sum(len(batch.data) for batch in batches[count:]) - retention_bytes
        while count < deletable and excess >= len(batches[count].data):
            excess -= len(batches[count].data)
            count += 1
    return count


def compacted(
    batches: Sequence[StoredBatch],
    is_newest: Callable[[int, int], bool],
    is_aborted: Callable[[int, int], bool] = lambda producer_id, offset: False,
) -> list[StoredBatch]:
    """Return what compaction leaves of the batches: of each key the last record, of control batches all.

    Records without a key go, and aborted ones; deletions (null values) and markers stay, as within
    ``delete.retention.ms``.

    :param is_newest: tells, by producer id and last offset, whether a batch is its producer's newest.
    :param is_aborted: tells, by producer id and offset, whether a transactional batch was aborted.
    """
    counted = {batch.base_offset: _counted(batch, is_aborted) for batch in batches}
    last = {record.key: record.offset for records in counted.values() for record in records}
    kept = []
    for batch in batches:
        header = read_header(batch.data)
        records = [record for record in counted[batch.base_offset] if last[record.key] == record.offset]
        if header.is_control or len(records) == header.record_count:
            kept.append(batch)
        elif records or (header.producer_id >= 0 and is_newest(header.producer_id, batch.last_offset)):
            kept.append(_rewritten(batch, header, records))
    return kept


def _counted(batch: StoredBatch, is_aborted: Callable[[int, int], bool]) -> list[Record]:
    """Return the data records of a batch that have a key; of an aborted one there are none."""
    header = read_header(batch.data)
    if header.is_transactional and is_aborted(header.producer_id, batch.base_offset):
        return []
    records = iter_records(batch.data, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
    return [record for record in records if record.key is not None]


def _rewritten(batch: StoredBatch, header: BatchHeader, records: list[Record]) -> StoredBatch:
    """Return a batch with only these of its records."""
    base = records[0].timestamp if records else NO_TIMESTAMP
    newest = max((record.timestamp for record in records), default=header.max_timestamp)
    payload = b"".join(_encoded(record, header.base_offset, base) for record in records)
    attributes = header.attributes if records else header.attributes & ~CODEC_MASK
    header = header._replace(
        attributes=attributes, base_timestamp=base, max_timestamp=newest, record_count=len(records)
    )
    data = assemble(header, compress(header.codec, payload) if records else b"")
    return batch._replace(max_timestamp=newest, data=bytes(data))


def _encoded(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """Return a record as a batch holds it, with its length."""
    parts = [b"\0", VARINTS[record.timestamp - base_timestamp], VARINTS[record.offset - base_offset]]
    parts += _nullable(record.key), _nullable(record.value), VARINTS[len(record.headers)]
    for name, value in record.headers:
        parts += _nullable(name.encode()), _nullable(value)
    body = b"".join(parts)
    return VARINTS[len(body)] + body


def _nullable(data: bytes | None) -> bytes:
    return VARINTS[-1] if data is None else VARINTS[len(data)] + data

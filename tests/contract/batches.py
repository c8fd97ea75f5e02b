"""Ready-made record batches for the contract tests."""

from kproxy.codec.batch import Record, build_batch, iter_records

START_MS = 1_700_000_000_000


def batch(
    *values: bytes, pid: int = -1, epoch: int = -1, seq: int = -1, transactional: bool = False, first_ms: int = START_MS
) -> bytearray:
    """One batch of records with these values, one ms apart."""
    records = [Record(number, first_ms + number, None, value, ()) for number, value in enumerate(values)]
    return build_batch(
        records, producer_id=pid, producer_epoch=epoch, base_sequence=seq, is_transactional=transactional
    )


def values(data: bytes) -> list[bytes | None]:
    """The values of all records in a record set."""
    return [record.value for record in iter_records(data, max_decompressed_bytes=1 << 24)]

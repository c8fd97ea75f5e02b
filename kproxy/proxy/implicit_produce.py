"""Produce requests of clients that know nothing of transactions, for a transaction that was begun for them."""

from collections.abc import Sequence
from typing import Protocol

from kproxy.codec.produce_layout import ProduceLayout, TopicRef
from kproxy.proxy.conversion import Converted
from kproxy.proxy.coordinator_requests import Produced, ProducePart
from kproxy.proxy.produce_batches import MAGIC_AT, check_batch
from kproxy.proxy.transaction_messages import produced
from kproxy.txn.procedures.captured import ImplicitTransaction
from kproxy.txn.requests import Written

_NO_BATCH = memoryview(b"")
#: Such clients have no sequences that count: a retry is never let into a transaction that can be committed.
_NO_SEQUENCE = -1


class ImplicitTransactionFinder(Protocol):
    """The clients whose Produce requests go into transactions that they know nothing of."""

    def of(self, client_id: str) -> ImplicitTransaction | None:
        """Where those of a client go that come now; None if they are written as they are."""
        ...


class CountConverted(Protocol):
    """Counts conversions."""

    def __call__(self, direction: str, magic: int, batches: int, records: int) -> None:
        """So many batches and records of this magic were converted."""
        ...


def implicit_parts(
    frame: bytearray, layout: ProduceLayout, converted: Converted | None, count: CountConverted
) -> list[ProducePart]:
    """The batches of a request, or what is wrong with them; a converted partition may have several, or none.

    What has neither records nor an error asks for nothing but a row in the answer. ``converted``: one of an old format.
    """
    if converted is None:
        return _as_they_are(frame, layout)
    parts: list[ProducePart] = []
    for place, batches in zip(layout.partitions, converted.parts, strict=True):
        if isinstance(batches, int):
            parts.append(ProducePart(*place.key, _NO_BATCH, 0, _NO_SEQUENCE, batches))
            continue
        parts += [
            ProducePart(*place.key, memoryview(batch.data), batch.record_count, _NO_SEQUENCE) for batch in batches
        ]
        if not batches:
            parts.append(ProducePart(*place.key, _NO_BATCH, 0, _NO_SEQUENCE))
        else:
            records = sum(batch.record_count for batch in batches)
            count("up", frame[place.start + MAGIC_AT], len(batches), records)
    return parts


def _as_they_are(frame: bytearray, layout: ProduceLayout) -> list[ProducePart]:
    view = memoryview(frame)
    parts: list[ProducePart] = []
    for place in layout.partitions:
        error, records = check_batch(frame, place)
        batch = _NO_BATCH if error else view[place.start : place.end]
        parts.append(ProducePart(*place.key, batch, records, _NO_SEQUENCE, error))
    return parts


def implicit_response(parts: Sequence[ProducePart], written: Sequence[Written], version: int) -> Produced:
    """The response: ``written`` holds the outcomes of the parts with records and without an error, in their order."""
    rows: dict[tuple[TopicRef, int], tuple[ProducePart, Written]] = {}
    outcomes = iter(written)
    for part in parts:
        key = (part.topic, part.partition)
        outcome = Written(part.error_code, -1, -1)
        if part.records and not part.error_code:
            outcome = next(outcomes)
        if key not in rows or (outcome.error_code and not rows[key][1].error_code):
            rows[key] = (part._replace(error_code=0), outcome)
    return produced([part for part, _ in rows.values()], [outcome for _, outcome in rows.values()], version)

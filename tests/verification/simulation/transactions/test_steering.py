"""What scripts hold on to."""

from types import SimpleNamespace
from typing import Any

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_expiry import TransactionExpiry
from kproxy.codec.batch import Record, build_batch
from kproxy.net.txn.log_topic import TOPIC as LOG
from kproxy.testing.fake_broker import Close
from kproxy.txn.log_records import Entry, encode
from verification.simulation.transactions.coordinators import Fatal
from verification.simulation.transactions.process import Abortable
from verification.simulation.transactions.steering import befall, goes_well, log_entries, of_log, values

EXPIRY = encode(Entry("id", TransactionExpiry(b"n" * 16)))


def call(topic: str, key: bytes | None, value: bytes) -> Any:
    """A Produce request with one record."""
    batch = bytes(build_batch([Record(0, 0, key, value)]))
    part = ProduceRequestPartitionProduceData(index=0, records=batch)
    row = ProduceRequestTopicProduceData(name=topic, partition_data=[part])
    return SimpleNamespace(request=ProduceRequest(topic_data=[row]))


def test_records_of_the_log_are_traced_by_kind_and_id() -> None:
    appended = call(LOG, *EXPIRY)
    assert [entry.transactional_id for entry in log_entries(appended)] == ["id"]
    assert of_log(TransactionExpiry)(appended)
    assert of_log(TransactionExpiry, "id")(appended)
    assert not of_log(TransactionExpiry, "other")(appended)
    assert not of_log(TransactionClaim)(appended)
    assert list(values(appended)) == []


def test_records_of_other_topics_are_data() -> None:
    written = call("t", None, b"a")
    assert list(values(written)) == [b"a"]
    assert list(log_entries(written)) == []


def test_what_nobody_understands_is_no_record_of_the_log() -> None:
    assert list(log_entries(call(LOG, b"?", b"?"))) == []


def test_faults_befall_one_request_after_the_other() -> None:
    controls: list[Any] = []
    world: Any = SimpleNamespace(brokers=SimpleNamespace(control=lambda _, function: controls.append(function)))
    befall(world, lambda call: b"a" in values(call), None, Close())
    (control,) = controls
    a, b = call("t", None, b"a"), call("t", None, b"b")
    assert [control(one) for one in (b, a, b, a, a)] == [None, None, None, Close(), None]


async def test_a_step_goes_well_without_an_error_of_a_producer() -> None:
    async def step(error: Exception | None) -> None:
        if error is not None:
            raise error

    assert [await goes_well(step(error)) for error in (None, Abortable("so"), Fatal("so"))] == [True, False, False]

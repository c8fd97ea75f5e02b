"""The text of records: one line each, and what matters in it."""

import pytest
from hypothesis import given, settings

from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec._generated.transaction_snapshot import TransactionSnapshot
from kproxy.codec.messages import Message
from kproxy.txn.ids import TXN_BITS, Producer
from kproxy.txn.log_records import Entry, encode
from kproxy.txn.text import describe
from kproxy.txn.view_values import BrokerTransaction
from tests.txn import bodies
from tests.txn.bodies import nonce, producer
from tests.txn.log_bodies import any_body, names

A, M = producer(100, 2), producer(200, 0)
ONE, MEMBER = f"{TXN_BITS | 100}:2", f"{TXN_BITS | 200}:0"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            bodies.claim(1, A, epochs=64, generation=3, client=Producer(100, 5)),
            f"CLAIM 'pay' producer={TXN_BITS | 100} epochs=2-65 generation=3 client=100:5 timeout_ms=60000 "
            "instance='kproxy-1' client_id='app' nonce=00000001",
        ),
        (
            bodies.partitions(1, A, {("orders", 0): 17, ("orders", 1): 4, ("bills", 0): 9}),
            f"PARTITIONS 'pay' {ONE} orders-0@17 orders-1@4 bills-0@9 nonce=00000001",
        ),
        (
            bodies.offsets(1, A, "g", {("in", 3): 99}),
            f"OFFSETS 'pay' {ONE} group='g' generation=1 in-3=99 nonce=00000001",
        ),
        (
            TransactionOffsets(
                nonce(1),
                *A,
                "g",
                4,
                "m-1",
                "static-1",
                [TransactionOffsetsTopic("in", [TransactionOffsetsPartition(3, 99)])],
            ),
            f"OFFSETS 'pay' {ONE} group='g' generation=4 member='m-1' static='static-1' in-3=99 nonce=00000001",
        ),
        (
            bodies.decision(1, A, True, [A, M], copies={A: {("orders", 0): {0: 17, 3: 20}}}, batch_id="7"),
            f"DECISION 'pay' COMMIT {ONE} next=7:0 batch='7' [{ONE} orders-0<21 0@17 3@20] [{MEMBER}] nonce=00000001",
        ),
        (bodies.decision(1, A, False), f"DECISION 'pay' ABORT {ONE} next=7:0 nonce=00000001"),
        (
            bodies.member(1, A, M, 2, "task-4"),
            f"MEMBER 'pay' {MEMBER} name='task-4' joins {ONE} member_nonce=00000002 nonce=00000001",
        ),
        (
            bodies.claim(1, A).replaced(resumed_producer_id=0, resumed_epoch=4),
            f"CLAIM 'pay' producer={TXN_BITS | 100} epochs=2-3 generation=1 client=7:0 resumed=0:4 timeout_ms=60000 "
            "instance='kproxy-1' client_id='app' nonce=00000001",
        ),
        (
            bodies.decision(1, A, False).replaced(reason="time-out"),
            f"DECISION 'pay' ABORT {ONE} next=7:0 reason='time-out' nonce=00000001",
        ),
        (
            bodies.native_member(
                1, A, M, 2, "task-4", BrokerTransaction("slot-1", Producer(300, 4), level=2, timeout_ms=900)
            ),
            f"MEMBER 'pay' {MEMBER} name='task-4' joins {ONE} broker='slot-1' 300:4 level=2 timeout_ms=900 "
            "member_nonce=00000002 nonce=00000001",
        ),
        (bodies.prepare(1, A), f"PREPARE 'pay' {ONE} nonce=00000001"),
        (bodies.mirrored(A, "g"), f"MIRRORED 'pay' {ONE} group='g'"),
        (bodies.expiry(1), "EXPIRY 'pay' nonce=00000001"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Message) else "",
)
def test_the_text_of_each_kind(body: Message, text: str) -> None:
    assert describe(*encode(Entry("pay", body))) == text


def test_the_text_of_a_chunk() -> None:
    raw = encode(Entry("", TransactionSnapshot(17, nonce(9), 1, 3, b"views")))
    assert describe(*raw) == "SNAPSHOT up_to=17 chunk=2/3 bytes=5 writer=00000009"


def test_the_text_of_a_rejection() -> None:
    assert describe(*encode(Entry("", bodies.reject(M.producer_id)))) == f"REJECT producer={TXN_BITS | 200}"


def test_what_cannot_be_read_is_shown_as_it_is() -> None:
    assert describe(b"\0\1new", b"?") == ("unreadable (record of version 1, newer than 0): key=00016e6577 value=3f")
    assert describe(None, None) == "unreadable (record without a version): key= value="


@settings(deadline=None)
@given(names, any_body)
def test_every_record_has_one_printable_line(name: str, body: Message) -> None:
    line = describe(*encode(Entry(name, body)))
    assert line.isprintable()
    assert not line.startswith("unreadable")

"""Records of the transaction log: their bytes never change; a newer kproxy's are distinguished from damage."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec._generated.transaction_snapshot import TransactionSnapshot
from kproxy.codec.messages import Message
from kproxy.errors import LocalProtocolError, RemoteProtocolError
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry, RecordKind, UnknownRecord, decode, encode
from kproxy.txn.view_values import BrokerTransaction
from tests.txn import bodies
from tests.txn.bodies import producer
from tests.txn.log_bodies import any_body, names

A, M = producer(100, 2), producer(200, 0)
NATIVE = BrokerTransaction("slot-1", Producer(300, 4), level=2, timeout_ms=900_000)
SAMPLES: list[Message] = [
    bodies.claim(1, A, epochs=64, generation=3, client=Producer(100, 5)),
    bodies.partitions(1, A, {("orders", 0): 17, ("orders", 1): 4, ("bills", 0): 1 << 40}),
    bodies.offsets(1, A, "group", {("in", 3): 99}),
    bodies.decision(1, A, True, [A, M], copies={A: {("orders", 0): {0: 17, 3: 20}}}, batch_id="7"),
    bodies.member(1, A, M, 2, "task-4"),
    bodies.prepare(1, A),
    bodies.mirrored(A, "group"),
    bodies.expiry(1),
    TransactionSnapshot(17, bodies.nonce(9), 1, 3, b"views"),
    bodies.reject(M.producer_id),
    bodies.ended(M),
    bodies.native_member(1, A, M, 2, "task-4", NATIVE),
    bodies.claim(3, A, client=NOBODY, continued=M),
    bodies.partitions(1, A, {("orders", 0): 17}, first_sequence=258),
]
# What released versions have written. A change that makes these differ makes logs unreadable: add a version instead.
GOLDEN: list[tuple[str, str]] = [
    (
        "00000000066e61c3af7665",
        "0000000000000000000000000000000000010000000360000000000000640002004000000000000000640005ffffffff"
        "ffffffffffff0000ea60096b70726f78792d310461707000",
    ),
    (
        "00000100066e61c3af7665",
        "0000000000000000000000000000000000016000000000000064000203076f7264657273030000000000000000000000"
        "110000000001000000000000000400000662696c6c7302000000000000010000000000000000",
    ),
    (
        "00000200066e61c3af7665",
        "000000000000000000000000000000000001600000000000006400020667726f75700000000101000203696e02000000"
        "030000000000000063ffffffff01000000",
    ),
    (
        "00000300066e61c3af7665",
        "000000000000000000000000000000000001600000000000006400020100000000000000070000023701036000000000"
        "000064000202076f72646572730200000000000000000000001503000000000000000000000011000000000300000000"
        "000000140000000060000000000000c80000010000",
    ),
    (
        "00000400066e61c3af7665",
        "00000000000000000000000000000000000160000000000000640002077461736b2d3460000000000000c80000000000"
        "0000000000000000000000000200",
    ),
    (
        "00000500066e61c3af7665",
        "000000000000000000000000000000000001600000000000006400020100",
    ),
    (
        "00000600066e61c3af7665",
        "0000600000000000006400020667726f757000",
    ),
    (
        "00000700066e61c3af7665",
        "00000000000000000000000000000000000100",
    ),
    (
        "00000800066e61c3af7665",
        "0000000000000000001100000000000000000000000000000009000000010000000306766965777300",
    ),
    (
        "00000900066e61c3af7665",
        "000060000000000000c800",
    ),
    (
        "00000a00066e61c3af7665",
        "000060000000000000c8000000",
    ),
    (
        "00000400066e61c3af7665",
        "00010000000000000000000000000000000160000000000000640002077461736b2d3460000000000000c80000000000"
        "000000000000000000000000020107736c6f742d31000000000000012c000402000dbba00000",
    ),
    (
        "00000000066e61c3af7665",
        "00010000000000000000000000000000000300000001600000000000006400020002ffffffffffffffffffffffffffff"
        "ffffffffffff0000ea60096b70726f78792d330461707060000000000000c8000000",
    ),
    (
        "00000100066e61c3af7665",
        "0000000000000000000000000000000000016000000000000064000202076f7264657273020000000000000000000000"
        "11010004000001020000",
    ),
]


def test_every_kind_is_tested() -> None:
    assert [Entry("id", body).kind for body in SAMPLES] == [
        *RecordKind,
        RecordKind.MEMBER,
        RecordKind.CLAIM,
        RecordKind.PARTITIONS,
    ]
    assert [int(kind) for kind in RecordKind] == list(range(11))


@pytest.mark.parametrize(("body", "golden"), list(zip(SAMPLES, GOLDEN, strict=True)), ids=lambda x: type(x).__name__)
def test_the_stored_bytes_never_change(body: Message, golden: tuple[str, str]) -> None:
    key, value = encode(Entry("naïve", body))
    assert (key.hex(), value.hex()) == golden
    assert decode(key, value) == Entry("naïve", body)


@settings(deadline=None)
@given(names, any_body)
def test_what_is_written_is_read(name: str, body: Message) -> None:
    assert decode(*encode(Entry(name, body))) == Entry(name, body)


@settings(deadline=None)
@given(any_body, st.data())
def test_cut_or_longer_records_are_damage(body: Message, data: Any) -> None:
    key, value = encode(Entry("id", body))
    cut = data.draw(st.integers(2, len(value) - 1)) if len(value) > 2 else None
    for wrong in [value + b"\0", *([value[:cut]] if cut is not None else [])]:
        with pytest.raises(RemoteProtocolError) as caught:
            decode(key, wrong)
        assert not isinstance(caught.value, UnknownRecord)


@pytest.mark.parametrize("body", SAMPLES, ids=lambda body: type(body).__name__)
def test_each_cut_of_a_sample_is_refused(body: Message) -> None:
    key, value = encode(Entry("id", body))
    for wrong in [None, *(value[:end] for end in range(len(value))), value + b"\0"]:
        with pytest.raises(RemoteProtocolError):
            decode(key, wrong)
    for wrong in [None, *(key[:end] for end in range(len(key))), key + b"\0"]:
        with pytest.raises(RemoteProtocolError):
            decode(wrong, value)


@pytest.mark.parametrize("version", [2, 7, -1])
def test_newer_versions_are_told_from_damage(version: int) -> None:
    key, value = encode(Entry("id", SAMPLES[0]))
    newer = struct.pack(">h", version) + b"something else"
    with pytest.raises(UnknownRecord):
        decode(newer, value)
    with pytest.raises(UnknownRecord):
        decode(key, newer)


@pytest.mark.parametrize("kind", [11, 100, -1])
def test_newer_kinds_are_told_from_damage(kind: int) -> None:
    key, value = encode(Entry("id", SAMPLES[0]))
    with pytest.raises(UnknownRecord, match=f"kind {kind}"):
        decode(key[:2] + struct.pack(">b", kind) + key[3:], value)


def test_a_field_that_a_newer_version_adds_as_a_tag_is_passed_over() -> None:
    key, value = encode(Entry("id", SAMPLES[7]))
    body = decode(key, value[:-1] + bytes.fromhex("010502abcd")).body
    assert body.nonce == bodies.nonce(1)  # type: ignore[attr-defined]


def test_what_cannot_be_said_is_an_error_of_ours() -> None:
    with pytest.raises(LocalProtocolError):
        encode(Entry("x" * 40_000, SAMPLES[0]))
    with pytest.raises(LocalProtocolError):
        encode(Entry("id", TransactionOffsets(nonce=b"short")))

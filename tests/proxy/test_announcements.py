"""What an instance says of itself, and what is believed of what is said."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.errors import RemoteProtocolError
from kproxy.proxy.announcements import (
    LONGEST_INTERVAL_MS,
    MOST_BYTES,
    Announcement,
    announcement_of,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from kproxy.proxy.facts import LegacyClient, Trouble
from tests.control.fake_facts import STATUS

PLACE: dict[str, Any] = {"host": "node-7", "listen": "10.0.0.7:9092", "http": "10.0.0.7:19644", "interval_ms": 60_000}
MADE = announcement_of(STATUS, **PLACE)


def test_an_announcement_is_read_as_it_was_written() -> None:
    assert MADE.instance_id == "box-1"
    assert MADE.connections == 42
    assert [row[:4] for row in MADE.legacy_clients] == [row[:4] for row in STATUS.legacy_clients]
    assert decode_key(encode_key(MADE.instance_id)) == "box-1"
    assert decode_value("box-1", encode_value(MADE)) == MADE._replace(
        legacy_clients=[row._replace(connections=0, last_seen_ms=0) for row in MADE.legacy_clients]
    )


def test_an_instance_that_serves_is_in_no_trouble() -> None:
    assert MADE.problems == []


def test_trouble_is_announced_in_words() -> None:
    outage = Trouble("no broker answers", 1_700_000_000_000, "tried again every 2 s", severe=True)
    made = announcement_of(STATUS._replace(troubles=[outage]), **PLACE)
    assert made.problems == ["no broker answers since 2023-11-14 22:13:20Z: tried again every 2 s"]


def test_an_entry_is_short_whatever_is_to_be_said() -> None:
    legacy = [LegacyClient("é" * 300, "s" * 300, 1, ["Produce v2" * 50] * 20) for _ in range(100)]
    made = MADE._replace(host="h" * 10_000, problems=["p" * 1000] * 50, legacy_clients=legacy, legacy_total=100)
    value = encode_value(made)
    assert len(value) <= MOST_BYTES
    read = decode_value("box-1", value)
    assert read.legacy_total == 100
    assert 0 < len(read.legacy_clients) < 20
    assert read.legacy_clients[0].client_id == "é" * 125
    assert len(read.problems) == 8


@pytest.mark.parametrize(
    "changes",
    [
        {"interval_ms": 0},
        {"interval_ms": LONGEST_INTERVAL_MS + 1},
        {"started_ms": -1},
        {"connections": -1},
        {"legacy_total": -1},
        {"legacy_clients": [LegacyClient("a", "", -1, [])]},
    ],
)
def test_what_no_kproxy_would_say_is_not_believed(changes: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError, match="impossible figure"):
        decode_value("box-1", encode_value(MADE._replace(**changes)))


def test_what_is_too_long_is_not_read() -> None:
    with pytest.raises(RemoteProtocolError, match="too long"):
        decode_value("box-1", encode_value(MADE) + bytes(MOST_BYTES))
    for key in (None, bytes(MOST_BYTES + 1)):
        with pytest.raises(RemoteProtocolError, match="no key"):
            decode_key(key)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_other_bytes_are_refused_or_read_and_nothing_else(noise: bytes, at: int) -> None:
    whole = encode_value(MADE)
    for data in (noise, whole[:at] + noise + whole[at + len(noise) :]):
        with suppress(RemoteProtocolError):
            assert isinstance(decode_value("x", data), Announcement)

"""A member: its sessions and what it says under a protocol."""

import pytest

from kproxy.testing.fake_broker.group_members import Member


def member(**state: bool) -> Member:
    protocols = [("range", b"r"), ("sticky", b"s")]
    return Member("m", None, "client", "/127.0.0.1", 100, 500, last_seen=1000, protocols=protocols, **state)


def test_metadata_is_returned_per_protocol() -> None:
    assert [member().metadata(name) for name in ("range", "sticky", "unknown")] == [b"r", b"s", b""]


def test_a_session_ends_when_its_time_out_has_passed() -> None:
    assert not member().expired(1099)
    assert member().expired(1100)


@pytest.mark.parametrize("waiting", ["joined", "synced"])
def test_a_member_whose_request_waits_never_expires(waiting: str) -> None:
    assert not member(**{waiting: True}).expired(1_000_000)

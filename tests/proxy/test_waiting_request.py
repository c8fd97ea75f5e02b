"""Requests that cannot be taken at once, step by step."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kproxy.codec._generated.heartbeat import HeartbeatRequest
from kproxy.codec._generated.metadata import MetadataRequest
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
)
from kproxy.codec.messages import ApiKey, ErrorCode, Message
from kproxy.dedup.lanes import Lane
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.commands import AwaitProgress, Beside, Blocking, Connect, LeaseProducerId
from kproxy.proxy.conversion import conversion
from kproxy.proxy.waiting_request import WaitingRequest
from tests.codec import message_sets
from tests.dedup.wires import ONE, FakeWire, ledger
from tests.proxy.playbook import KAFKA_44, PID, Play, batch

KEY = b"t", 0


def produce(records: bytes, acks: int = -1, timeout_ms: int = 10_000) -> ProduceRequest:
    part = ProduceRequestPartitionProduceData(index=0, records=records)
    topics = [ProduceRequestTopicProduceData(name="t", partition_data=[part])]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def unleased(*, joined: bool = True) -> Play:
    """A session that has no producer id yet; whether it has its place among its producer's connections."""
    play = Play()
    play.gate.member = ledger().join(ONE, FakeWire(), 0.0) if joined else None
    play.gate.producer.lane = None
    play.session.read_all(1.0)
    return play


def ask(play: Play, message: Message, version: int) -> WaitingRequest:
    waiting = play.session.request(play.frame(message, version), 1.0)
    assert waiting is not None
    return waiting


def commands(waiting: WaitingRequest, *happens: object) -> Sequence[Blocking | None]:
    """What a request waits for, now and after each of these calls."""
    found = [waiting.command]
    for each in happens:
        assert callable(each)
        each()
        waiting.resume(2.0)
        found.append(waiting.command)
    return found


def test_a_request_continues_where_it_was_when_it_has_what_it_waited_for() -> None:
    play = unleased()
    waiting = ask(play, produce(batch(b"a")), 7)
    assert commands(waiting, lambda: play.session.lease(Lane(PID))) == [LeaseProducerId(), None]
    assert len(play.upstream()) == 1


def test_its_time_counts_from_when_it_was_taken() -> None:
    play = unleased()
    waiting = ask(play, produce(batch(b"a")), 7)
    commands(waiting, lambda: play.session.lease(Lane(PID)))
    assert play.session.producer.oldest == 2.0


def test_what_is_in_the_way_of_any_request_is_in_its_way_before_each_step() -> None:
    play = unleased()
    waiting = ask(play, produce(batch(b"a")), 7)

    def lease() -> None:
        play.session.lease(Lane(PID))
        play.gate.recovering = True

    assert commands(waiting, lease, lambda: play.gate.recovered(3.0)) == [LeaseProducerId(), AwaitProgress(), None]


def test_it_begins_again_over_another_broker_which_may_serve_less() -> None:
    play = unleased()
    waiting = ask(play, produce(batch(b"a")), 7)
    older = {**KAFKA_44, ApiKey.PRODUCE: (0, 6)}
    happens = [lambda: play.session.disconnected(3.0), lambda: play.session.connected(KAFKA_44, 1)]
    assert commands(waiting, *happens) == [LeaseProducerId(), Connect(), LeaseProducerId()]
    play.session.disconnected(3.0)
    waiting.resume(3.0)
    play.session.connected(older, 2)
    with pytest.raises(RemoteProtocolError, match="newest served is v6"):
        waiting.resume(3.0)


def test_what_is_malformed_is_seen_before_a_broker_is_asked_for() -> None:
    play = Play()
    play.session.disconnected(3.0)
    assert ask(play, HeartbeatRequest(), 0).command == Connect()
    with pytest.raises(RemoteProtocolError):
        play.session.request(bytearray(b"\0\0\0\x02\0\x0c"), 1.0)


def test_an_old_format_is_converted_once_whatever_it_waits_for_then(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def count(*args: object) -> object:
        work = conversion(*args)  # type: ignore[arg-type]
        monkeypatch.setattr(work.__class__, "at_once", lambda _: False)
        made.append(work)
        return work

    monkeypatch.setattr("kproxy.proxy.produce_gate.conversion", count)
    play = unleased()
    waiting = ask(play, produce(message_sets.entry(0, None, b"a")), 1)
    assert isinstance(waiting.command, Beside)
    assert commands(waiting, waiting.command.work.whole)[1:] == [LeaseProducerId()]
    assert commands(waiting, lambda: play.session.lease(Lane(PID)))[1:] == [None]
    assert len(made) == 1
    assert len(play.upstream()) == 1


@pytest.mark.parametrize(
    ("message", "version", "due"),
    [
        (produce(batch(b"a")), 7, 10.0),
        (produce(batch(b"a"), timeout_ms=100), 7, 2.0),
        (produce(batch(b"a"), acks=0), 7, None),
        (MetadataRequest(), 1, None),
    ],
)
def test_a_client_that_waits_for_a_response_to_produce_has_one_in_time(
    message: Message, version: int, due: float | None
) -> None:
    play = unleased()
    play.gate.recovering = True
    assert ask(play, message, version).due == due


def test_only_what_will_be_stamped_joins_its_producers_connections() -> None:
    play = unleased(joined=False)
    play.gate.recovering = True
    own = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    found = [ask(play, message, 7).joins for message in (produce(batch(b"a")), produce(own))]
    assert found == [True, False]
    assert not ask(play, MetadataRequest(), 1).joins
    play = Play(idempotence=False)
    play.gate.member, play.gate.recovering = None, True
    assert not ask(play, produce(batch(b"a")), 7).joins


def test_a_request_that_is_due_is_refused_and_is_in_no_other_ones_way_then() -> None:
    play = unleased()
    waiting = ask(play, produce(batch(b"a")), 7)
    assert play.gate.member is not None
    assert play.gate.member.waits_with(KEY)
    waiting.refuse(10.0)
    assert waiting.command is None
    waiting.close()
    assert not play.gate.member.is_waiting
    (row,) = play.answer().responses[0].partition_responses
    assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert play.stats.produce.requests_timed_out == 1


def test_what_is_abandoned_holds_up_nothing() -> None:
    play = unleased()
    waiting = ask(play, produce(batch(b"a")), 7)
    waiting.close()
    assert play.gate.member is not None
    assert not play.gate.member.is_waiting
    play.session.lease(Lane(PID))
    assert not play.upstream()


def test_one_that_joins_while_it_waits_is_in_the_way_of_others_from_then_on() -> None:
    play = unleased(joined=False)
    waiting = ask(play, produce(batch(b"a")), 7)
    member = ledger().join(ONE, FakeWire(), 0.0)
    play.session.join(member)
    assert not member.is_waiting
    waiting.waits()
    assert member.waits_with(KEY)


@pytest.mark.parametrize("version", [1, 7])
def test_a_request_goes_into_a_transaction_that_was_begun_for_its_client_while_it_waited(version: int) -> None:
    play, records = Play(), batch(b"a") if version == 7 else message_sets.entry(0, None, b"a")

    class Captures:
        is_open = False

        def of(self, client_id: str) -> "Captures | None":
            return self if self.is_open else None

        def took(self, connection: int, *, answered: bool) -> None:
            """Records it."""

    captures = Captures()
    play.ctx.services = replace(play.ctx.services, implicit_transactions=captures)
    play.gate.producer.lane = None
    waiting = ask(play, produce(records), version)
    assert waiting.command == LeaseProducerId()
    captures.is_open = True
    play.session.lease(Lane(PID))
    waiting.resume(2.0)
    assert waiting.command is None
    assert play.coordinator_call().ask.capture is captures

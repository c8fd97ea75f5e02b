"""Whose producer ids come on a connection, and which requests of kept producers are sent when."""

import weakref
from dataclasses import replace

import pytest

from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.batch import Record, build_batch, read_header
from kproxy.codec.header import encode_request
from kproxy.codec.messages import ErrorCode
from kproxy.codec.produce_layout import ProduceLayout, walk_request
from kproxy.dedup.kept.clients import KeptClients
from kproxy.dedup.kept.ids import GivenIds, successor
from kproxy.dedup.kept.steps import LEFT_OUT, SEND_AGAIN
from kproxy.proxy.commands import AskCoordinator, OpenLog
from kproxy.proxy.context import Client, Context, Services
from kproxy.proxy.handlers import DEFAULT
from kproxy.proxy.handlers.base import Exchange
from kproxy.proxy.kept_calls import KeptCall, RepairRequest
from kproxy.proxy.kept_gate import KeptGate, owner_of
from kproxy.proxy.kept_stats import KeptStats
from kproxy.proxy.principals import ANONYMOUS
from kproxy.proxy.routing import ClusterMap
from kproxy.proxy.slots import Slot
from tests.proxy.playbook import Play

VERSION = 8
SECRET = b"0123456789abcdef"


class Scene:
    """One connection; its client was given ``id``."""

    def __init__(self, client: Client | None = None, *, secret: bytes = SECRET) -> None:
        self.clients = KeptClients(("*",))
        if secret:
            self.clients.learns(secret)
        self.ctx = Context(Services(ClusterMap(), kept=self.clients), client=client or Client(1, "10.0.0.1"))
        self.stats = KeptStats()
        self.gate = KeptGate(self.ctx, self.clients, self.stats)
        given = GivenIds(SECRET).given(4711, owner_of(self.ctx, self.clients))
        assert given is not None
        self.id = given

    def take(self, *sequences: int, epoch: int = 0) -> tuple[KeptCall, dict[int, int]]:
        """Takes a request with a batch of two records for each of the partitions 0, 1, and so on."""
        taken = self.gate.take(*request(self.id, *sequences, epoch=epoch), VERSION)
        assert taken is not None
        call, refused = taken
        return call, {index: error for (_, index), error in refused.items()}

    def told(self, call: KeptCall, error: int = 0) -> None:
        """The broker's response: at the offset that equals the sequence."""
        call.answered({part.key: (error, part.batch.sequence, -1) for part in call.parts}, lambda _: None)


def request(producer_id: int, *sequences: int, epoch: int = 0) -> tuple[bytearray, ProduceLayout]:
    records = [Record(at, 1, None, b"x", ()) for at in range(2)]
    data = [
        ProduceRequestPartitionProduceData(
            index=index,
            records=bytes(build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)),
        )
        for index, sequence in enumerate(sequences)
    ]
    topic = ProduceRequestTopicProduceData(name="t", partition_data=data)
    message = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    frame = bytearray(encode_request(message, VERSION, 1, "me"))
    return frame, walk_request(frame, 4 + 8 + 2 + 2, VERSION)


def test_an_id_is_its_clients_own_or_somebody_elses_or_was_never_given() -> None:
    scene = Scene()
    assert scene.gate.holds(*request(scene.id, 0, 0)) is True
    assert scene.gate.holds(*request(4711, 0)) is False
    assert scene.gate.holds(*request(scene.id + 1, 0)) is None


@pytest.mark.parametrize(
    ("other", "is_own"),
    [
        (Client(2, "10.0.0.1"), True),
        (Client(2, "::ffff:10.0.0.1"), True),
        (Client(2, "10.0.0.2"), False),
        (Client(2, "10.0.0.1", client_id="other"), False),
        (Client(2, "10.0.0.1", principal="User:other"), False),
    ],
)
def test_it_belongs_to_a_client_across_its_connections(other: Client, is_own: bool) -> None:
    given = Scene().id
    assert Scene(other).gate.holds(*request(given, 0)) is (True if is_own else None)


def test_of_who_has_logged_in_the_principal_counts_alone() -> None:
    client = Client(1, "10.0.0.1", principal="User:me")
    given = Scene(client).id
    assert Scene(replace(client, host="10.0.0.9", client_id="x")).gate.holds(*request(given, 0))
    assert Scene(replace(client, principal=ANONYMOUS)).gate.holds(*request(given, 0)) is None


def test_before_the_secret_is_known_nobody_can_tell() -> None:
    scene = Scene(secret=b"")
    assert scene.gate.awaits_owner(*request(scene.id, 0))
    assert not scene.gate.awaits_owner(*request(4711, 0))
    scene.clients.learns(SECRET)
    assert not scene.gate.awaits_owner(*request(scene.id, 0))


def test_without_one_a_given_id_is_nobodys() -> None:
    scene = Scene(secret=b"")
    scene.clients.learns(bytes(16))
    assert scene.gate.holds(*request(scene.id, 0)) is None


def test_where_the_brokers_ids_leave_no_room_for_a_mark_all_are_relayed() -> None:
    scene = Scene()
    drawn = (1 << 60) + 5
    assert scene.gate.holds(*request(drawn, 0)) is None
    scene.clients.sees(4711)
    assert scene.gate.holds(*request(drawn, 0)) is None
    scene.clients.sees(drawn)
    assert scene.clients.give(drawn, b"me") == drawn
    assert scene.gate.holds(*request(drawn, 0)) is False


def test_a_batch_without_a_sequence_is_relayed() -> None:
    scene = Scene()
    assert scene.gate.take(*request(scene.id, -1), VERSION) is None


def test_the_second_request_of_a_producer_waits_for_the_response_to_the_first() -> None:
    scene = Scene()
    assert not scene.gate.waits_for_first(*request(scene.id, 0))
    first, _ = scene.take(0)
    assert scene.gate.waits_for_first(*request(scene.id, 2))
    waits = [scene.gate.is_waiting]
    scene.told(first)
    assert [*waits, scene.gate.is_waiting] == [True, False]
    assert not scene.gate.waits_for_first(*request(scene.id, 2))
    scene.take(2)
    assert not scene.gate.waits_for_first(*request(scene.id, 4))


def test_a_look_at_a_producer_that_is_not_known_takes_no_memory() -> None:
    scene = Scene()
    scene.take(0)
    known = len(scene.clients.producers)
    assert not scene.gate.waits_for_first(*request(scene.id + 1, 2, 2, 2))
    assert len(scene.clients.producers) == known


def test_on_another_partition_it_does_not() -> None:
    scene = Scene()
    scene.take(0)
    frame, layout = request(scene.id, 0, 0)
    layout.partitions = layout.partitions[1:]
    assert not scene.gate.waits_for_first(frame, layout)


def test_nor_for_one_that_will_have_none() -> None:
    scene = Scene()
    first, _ = scene.take(0)
    assert scene.gate.waits_for_first(*request(scene.id, 2))
    first.dropped()
    assert not scene.gate.is_waiting


def test_what_follows_a_refused_first_one_is_refused_alone() -> None:
    scene = Scene()
    first, _ = scene.take(0, 0)
    scene.told(first, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    call, refused = scene.take(2, 0)
    assert refused == {0: SEND_AGAIN}
    assert [(part.key[1], told.error_code) for part, told in call.wrong or ()] == [(1, SEND_AGAIN)]
    assert not call.done


def test_what_its_client_left_out_is_refused_for_good() -> None:
    scene = Scene()
    scene.clients.producers.partition(scene.id, (b"t", 0)).first = 4
    scene.clients.producers.partition(scene.id, (b"t", 0)).epoch = 0
    call, refused = scene.take(2)
    assert refused == {0: LEFT_OUT}
    assert call.done
    assert scene.stats.left_out == 1


def test_a_batch_goes_under_the_id_in_use() -> None:
    scene = Scene()
    partition = scene.clients.producers.partition(scene.id, (b"t", 0))
    partition.epoch, partition.generation = 3, 2
    call, _ = scene.take(6, epoch=3)
    header = read_header(memoryview(call.frame)[call.parts[0].start : call.parts[0].end])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (successor(scene.id, 2), 3, 6)


def test_errors_about_numbers_are_looked_into_and_others_passed_on() -> None:
    scene = Scene()
    call, _ = scene.take(0, 0)
    errors = {0: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1: ErrorCode.NOT_ENOUGH_REPLICAS}
    results = {(b"t", at): (int(error), -1, -1) for at, error in errors.items()}
    for _ in range(2):  # a response may be offered again
        call.answered(results, lambda _: None)
    assert [part.key[1] for part, _ in call.wrong or ()] == [0]
    assert not call.done
    assert scene.clients.producers.partition(scene.id, (b"t", 0)).open == [0]
    assert scene.clients.producers.partition(scene.id, (b"t", 1)).open == []


@pytest.mark.parametrize(
    ("error", "is_looked_up"),
    [
        (ErrorCode.NONE, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (None, True),
    ],
)
def test_a_batch_that_may_be_in_the_log_is_looked_up_when_it_is_repeated(
    error: ErrorCode | None, is_looked_up: bool
) -> None:
    scene = Scene()
    scene.told(scene.take(0)[0])
    call = scene.take(2)[0]
    assert call.wrong is None
    if error is None:
        call.dropped()
    else:
        scene.told(call, error)
    again = scene.take(2)[0]
    assert bool(again.wrong) is is_looked_up
    later = scene.take(4)[0]
    assert later.wrong is None
    assert scene.take(0, epoch=1)[0].wrong


def test_a_batch_that_is_in_flight_over_another_connection_is_looked_up() -> None:
    scene = Scene()
    scene.told(scene.take(0)[0])
    scene.take(2)
    assert scene.take(2)[0].wrong


def test_what_follows_a_batch_that_is_looked_up_waits_for_it() -> None:
    scene = Scene()
    scene.told(scene.take(0)[0])
    call = scene.take(0)[0]
    assert scene.gate.waits_for_first(*request(scene.id, 2))
    waits = [scene.gate.is_waiting]
    call.finish()
    assert [*waits, scene.gate.is_waiting] == [True, False]
    assert not scene.gate.waits_for_first(*request(scene.id, 2))


class _Frame(bytearray):
    """A frame of which it can be seen whether anything holds it."""


def test_an_answered_request_is_not_held_until_the_next_one_comes() -> None:
    scene = Scene()
    data, layout = request(scene.id, 0)
    frame = _Frame(data)
    is_held = weakref.ref(frame)
    taken = scene.gate.take(frame, layout, VERSION)
    assert taken is not None
    del frame
    assert is_held() is not None
    scene.told(taken[0])
    assert is_held() is None


def test_what_is_dropped_after_the_response_keeps_what_that_has_said() -> None:
    scene = Scene()
    call, _ = scene.take(0, 0)
    errors = {0: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1: ErrorCode.NONE}
    call.answered({(b"t", at): (int(error), 0, -1) for at, error in errors.items()}, lambda _: None)
    call.dropped()
    looked_into, written = (scene.clients.producers.partition(scene.id, (b"t", at)) for at in range(2))
    assert (looked_into.open, written.open, written.refused) == ([], [], ())
    assert looked_into.refused


def test_a_connection_that_ends_before_a_repair_begins_leaves_no_batch_in_flight() -> None:
    scene, play = Scene(), Play()
    call, _ = scene.take(0)
    scene.told(call, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    partition = scene.clients.producers.partition(scene.id, (b"t", 0))
    assert partition.open == [0]
    ask, exchange = RepairRequest(call, ProduceResponse(), ""), Exchange(None, VERSION, VERSION)
    play.session.commands.append(AskCoordinator(Slot(0, VERSION, 1, 0.0, 100), DEFAULT, exchange, ask))
    play.session.drop()
    assert partition.open == []


def test_a_batch_that_waits_too_long_for_its_owner_ends_the_connection() -> None:
    """Else a broker that knows nothing of the producer would take the next one first, and refuse this one."""
    scene, play = Scene(secret=b""), Play()
    play.gate._kept = scene.gate
    waiting = play.session.request(request(scene.id, 0)[0], 1.0)
    assert waiting is not None
    assert waiting.command == OpenLog()
    waiting.refuse(10.0)
    assert play.link.finished
    assert play.stats.produce.requests_timed_out == 0


@pytest.mark.parametrize(("requests", "is_apart"), [(4, True), (5, False)])
def test_a_raised_epoch_costs_nothing_on_a_partition_for_which_the_client_has_received_all(
    requests: int, is_apart: bool
) -> None:
    scene = Scene()
    scene.told(scene.take(0, 0)[0])
    for at in range(requests - 1):
        scene.told(scene.take(2 + 2 * at)[0])
    frame, layout = request(scene.id, 0, 0, epoch=1)
    layout.partitions = layout.partitions[1:]
    taken = scene.gate.take(frame, layout, VERSION)
    assert taken is not None
    assert bool(taken[0].wrong) is is_apart


def test_clients_that_may_move_may_have_received_less() -> None:
    scene = Scene()
    scene.clients.may_move = True
    gate = KeptGate(scene.ctx, scene.clients, scene.stats)
    taken = gate.take(*request(scene.id, 0), VERSION)
    assert taken is not None
    assert taken[0].flow is None

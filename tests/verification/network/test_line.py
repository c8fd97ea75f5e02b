import pytest

from tests.verification.network.test_packets import CLIENT, SERVER, packet
from verification.network.line import Line, Way
from verification.network.packets import ACK, FIN, RST, SYN, parse

OTHER = ("198.18.0.2", 4001)


def request(data: bytes = b"", *, source: tuple[str, int] = CLIENT, sequence: int = 1, flags: int = ACK) -> bytes:
    return packet(source, SERVER, sequence=sequence, acknowledged=1, flags=flags, payload=data)


def response(data: bytes = b"", *, target: tuple[str, int] = CLIENT, sequence: int = 1, flags: int = ACK) -> bytes:
    return packet(SERVER, target, sequence=sequence, acknowledged=101, flags=flags, payload=data)


def arrived(line: Line, now: float = 0.0) -> list[bytes]:
    return [each for _, each in line.due(now)]


def opened(*clients: tuple[str, int]) -> Line:
    line = Line()
    for client in clients:
        line.take(Way.REQUESTS, request(source=client, sequence=0, flags=SYN), 0)
        line.take(Way.RESPONSES, response(target=client, sequence=0, flags=SYN | ACK), 0)
    assert len(arrived(line)) == 2 * len(clients)
    return line


def test_packets_leave_in_order_after_the_latency() -> None:
    line = Line(0.1)
    line.take(Way.REQUESTS, request(b"a"), 1.0)
    line.take(Way.RESPONSES, response(b"b"), 1.0)
    assert line.wait_s(1.0) == pytest.approx(0.1)
    assert not arrived(line, 1.05)
    assert [way for way, _ in line.due(1.1)] == [Way.REQUESTS, Way.RESPONSES]
    assert line.wait_s(1.1) is None


def test_a_cut_drops_one_direction_or_both_and_what_is_in_flight() -> None:
    line = Line(0.1)
    line.take(Way.REQUESTS, request(b"in flight"), 0)
    line.cut(Way.REQUESTS)
    line.take(Way.REQUESTS, request(b"later"), 0)
    line.take(Way.RESPONSES, response(b"passes"), 0)
    assert arrived(line, 1) == [response(b"passes")]
    assert not line.is_cut
    line.cut()
    assert line.is_cut
    line.heal()
    line.take(Way.REQUESTS, request(b"healed"), 1)
    assert arrived(line, 2) == [request(b"healed")]
    assert line.counts.dropped == 2


def test_a_cut_after_a_response_lets_that_one_pass_and_no_acknowledgement_of_it() -> None:
    line = opened(CLIENT)
    line.cut_after(Way.RESPONSES)
    line.take(Way.REQUESTS, request(b"request"), 0)
    line.take(Way.RESPONSES, response(), 0)
    line.take(Way.RESPONSES, response(b"response"), 0)
    assert len(arrived(line)) == 3
    assert line.is_cut
    line.take(Way.REQUESTS, request(sequence=8), 0)
    assert not arrived(line)


def test_segments_with_payload_are_counted_while_they_are_in_flight() -> None:
    line = opened(CLIENT, OTHER)
    line.delay_s = 0.1
    for client in (CLIENT, OTHER, CLIENT):
        line.take(Way.REQUESTS, request(b"x", source=client), 0)
        line.take(Way.RESPONSES, response(target=client), 0)
    line.take(Way.RESPONSES, response(b"y", target=OTHER), 0.05)
    assert line.in_flight(Way.REQUESTS) == {CLIENT: 2, OTHER: 1}
    assert line.in_flight(Way.RESPONSES) == {OTHER: 1}
    assert len(arrived(line, 0.1)) == 6
    assert not line.in_flight(Way.REQUESTS)
    assert line.in_flight(Way.RESPONSES) == {OTHER: 1}


def test_chosen_segments_are_lost() -> None:
    line = opened(CLIENT, OTHER)
    line.losing = lambda way, segment: way is Way.RESPONSES and segment.target == OTHER
    for client in (CLIENT, OTHER):
        line.take(Way.REQUESTS, request(b"x", source=client), 0)
        line.take(Way.RESPONSES, response(b"y", target=client), 0)
    found = [parse(each) for each in arrived(line)]
    assert [segment and (segment.source, segment.target) for segment in found] == [
        (CLIENT, SERVER),
        (SERVER, CLIENT),
        (OTHER, SERVER),
    ]


def test_resets_have_the_numbers_that_each_end_expects_and_drop_what_is_in_flight() -> None:
    line = opened(CLIENT, OTHER)
    line.take(Way.REQUESTS, request(bytes(200)), 0)
    assert len(arrived(line)) == 1
    line.delay_s = 1.0
    line.take(Way.RESPONSES, response(b"lost"), 0)
    line.take(Way.RESPONSES, response(b"kept", target=OTHER), 0)
    made = [(way, parse(each)) for way, each in line.reset({CLIENT})]
    assert {(way, segment and segment.sequence) for way, segment in made} == {
        (Way.REQUESTS, 101),  # acknowledged
        (Way.REQUESTS, 201),  # delivered
        (Way.RESPONSES, 1),
    }
    assert all(segment is not None and segment.flags == RST for _, segment in made)
    assert arrived(line, 1) == [response(b"kept", target=OTHER)]
    assert line.connections == {OTHER}
    assert line.counts.resets == 1


@pytest.mark.parametrize("ends", [[(Way.REQUESTS, RST)], [(Way.REQUESTS, FIN), (Way.RESPONSES, FIN)]])
def test_a_connection_that_has_ended_is_not_reset(ends: list[tuple[Way, int]]) -> None:
    line = opened(CLIENT)
    for way, flags in ends:
        assert line.connections == {CLIENT}
        line.take(way, request(flags=flags) if way is Way.REQUESTS else response(flags=flags), 0)
        assert len(arrived(line)) == 1
    assert not line.connections
    assert not line.reset()

"""What a refused request costs over several connections of one client, and when its retry is no longer expected.

A client pipelines to one broker, loses that connection, and continues at the same broker or at another one. Each order
in which kproxy may see that is run.
"""

from collections.abc import Iterator
from itertools import permutations, product

import pytest

from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import ErrorCode
from kproxy.dedup.lanes import Lane
from kproxy.dedup.retry_ledger import ReadBack
from kproxy.proxy.commands import AwaitEnd, Resolve
from kproxy.proxy.retries import digests_at
from kproxy.proxy.waiting_request import WaitingRequest
from tests.dedup.wires import ONE, FakeWire, ledger
from tests.proxy.playbook import KAFKA_44, PID, Play
from tests.proxy.test_produce_gate import produce

KEY = b"t", 0
#: The brokers: the first one refuses, and may be the leader again.
FIRST, SECOND, THIRD = 1, 2, 3


def made(letter: str) -> bytes:
    """A record; each has a time of its own."""
    return bytes(build_batch([Record(0, 1_700_000_000_000 + ord(letter), None, letter.encode(), ())]))


class Client:
    """A client that pipelines, as kproxy sees it: its connections, and what was accepted of them."""

    def __init__(self, depth: int = 3) -> None:
        self.book = ledger()
        self.depth = depth
        self.now = 1.0
        self.accepted = ""
        self.refused: list[str] = []
        self.wires: dict[Play, FakeWire] = {}
        #: The request that waits over the first connection.
        self.waiting: WaitingRequest | None = None

    def connect(self, node_id: int) -> Play:
        """A new connection."""
        play, wire = Play(), FakeWire()
        self.wires[play] = wire
        play.session.connected(KAFKA_44, node_id)
        member = self.book.enter(ONE, wire, self.now)
        member.moved(node_id)
        member.pipelined(self.depth)
        play.session.join(member)
        play.session.lease(Lane(PID + len(self.wires)))
        return play

    def frame(self, play: Play, letter: str, *, pipelined: bool = False) -> bytearray:
        """A request; ``pipelined``: it has lain there since the one before was sent."""
        self.now += 0.01
        play.asked_at = play.answered_at = self.now
        if not pipelined:
            play.session.read_all(self.now)
        return play.frame(produce("t", made(letter)), 7)

    def send(self, play: Play, letter: str, *, pipelined: bool = False) -> bool:
        """A request arrives; whether it is accepted, and answered as a success then."""
        frame = self.frame(play, letter, pipelined=pipelined)
        waiting = play.session.request(frame, self.now)
        if waiting is not None:
            self.wait(waiting)
        sent = play.upstream()
        for version, correlation_id, _ in sent:
            row = ProduceResponsePartitionProduceResponse(index=0, base_offset=len(self.accepted))
            self.accepted += letter
            topic = ProduceResponseTopicProduceResponse(name="t", partition_responses=[row])
            play.reply(ProduceResponse(responses=[topic]), version, correlation_id)
        return bool(sent)

    def wait(self, waiting: WaitingRequest) -> None:
        """What a request waits for happens, until it is accepted or refused."""
        while (command := waiting.command) is not None:
            if isinstance(command, AwaitEnd):
                self.now = command.until
            else:
                assert isinstance(command, Resolve)
                assert isinstance(command.prerequisite, ReadBack)
                for entry in command.prerequisite.entries:
                    batch = made(self.accepted[entry.stamp.base_offset])
                    entry.recall(digests_at(batch, 1 << 20)[0], [entry.stamp.base_offset])
            waiting.resume(self.now)
        waiting.close()

    def hold_up(self, play: Play, frame: bytearray) -> None:
        """A request arrives over a connection that takes none now."""
        play.gate.recovering = True
        self.waiting = play.session.request(frame, self.now)
        play.gate.recovering = False

    def time_out(self, due: float) -> None:
        """The request that waits is refused."""
        assert self.waiting is not None
        self.waiting.refuse(due)
        self.waiting.close()

    def refuse(self, play: Play, letter: str) -> None:
        """A request is refused since its partition has moved."""
        play.gate.producer.refusals.expect(KEY, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert not self.send(play, letter)


def runs(*parts: str) -> Iterator[str]:
    """Every order of steps in which each part keeps its own."""
    for order in sorted(set(permutations("".join(str(number) * len(part) for number, part in enumerate(parts))))):
        left = [iter(part) for part in parts]
        yield "".join(next(left[int(number)]) for number in order)


#: Of the first connection: a request waits (W), is refused (R), and one that was pipelined after it is read (p). Both
#: are repeated over another one (a, b). kproxy notices the end of the first one (E), or can see it if it looks.
SEEN = sorted(run for run in runs("WRp", "E", "ab") if run.index("R") < min(run.index("a"), run.index("E")))
#: Nobody can see it before all else has happened.
UNSEEN = sorted(
    run + "E" for run in runs("WRp", "ab") if run.index("W") < run.index("a") and run.index("p") < run.index("b")
)


def end(client: Client, first: Play, frame: bytearray, step: str) -> None:
    """What becomes of the first connection."""
    if step == "W":
        client.hold_up(first, frame)
    elif step == "R":
        client.time_out(client.now)
    elif step == "p":
        client.send(first, "b", pipelined=True)
    else:
        first.gate.member.end(client.now)


@pytest.mark.parametrize(("again", "later"), list(product((FIRST, SECOND), repeat=2)))
@pytest.mark.parametrize("run", SEEN + UNSEEN + ["WRaE", "WREa", "WaRE"])
def test_once_its_retry_was_accepted_a_refused_request_costs_nothing(run: str, again: int, later: int) -> None:
    if run.index("a") < run.index("R"):
        again = FIRST  # at another broker it waits for the outcome of the first
    client = Client()
    first = client.connect(FIRST)
    client.send(first, "z")
    frame = client.frame(first, "a")
    second = client.connect(again)
    third = client.connect(later)
    for step in run:
        if step in "ab":
            client.wires[first].gone = not run.endswith("E")
            assert client.send(second, step), f"the retry of {step} was refused"
        else:
            end(client, first, frame, step)
    following = "defghi" if "b" in run else "bcdefghi"
    assert all([client.send(third, letter) for letter in following])
    assert client.accepted == "z" + ("abdefghi" if "b" in run else "abcdefghi")


@pytest.mark.parametrize("again", [FIRST, SECOND])
@pytest.mark.parametrize("ends", [False, True])
def test_what_was_ready_at_a_new_leader_follows_the_retry_wherever_that_comes(again: int, ends: bool) -> None:
    client = Client()
    first, leader = client.connect(FIRST), client.connect(SECOND)
    client.send(first, "z")
    client.refuse(first, "a")
    assert not client.send(leader, "b")
    if ends:
        client.wires[first].gone = True
        first = client.connect(FIRST)
    repeating, other = (first, leader) if again == FIRST else (leader, first)
    assert client.send(repeating, "a")
    assert client.send(repeating, "b")
    assert all([client.send(other, letter) for letter in "cdefg"])
    assert client.accepted == "zabcdefg"


@pytest.mark.parametrize("apart", [0.1, 0.6, 5.0])
def test_what_was_pipelined_after_a_request_that_could_not_be_taken_follows_it_whenever_it_is_refused(
    apart: float,
) -> None:
    client = Client(depth=2)
    play = client.connect(FIRST)
    client.send(play, "z")
    first = client.frame(play, "a")
    client.hold_up(play, first)
    client.now += apart
    second = client.frame(play, "b")
    client.now += 9.0
    client.time_out(client.now)
    client.hold_up(play, second)
    client.now += apart
    client.time_out(client.now)
    play.answers()
    assert [client.send(play, letter) for letter in "abc"] == [True, True, True]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_request_that_is_given_up_costs_no_more_over_three_connections_than_over_one(depth: int) -> None:
    client = Client(depth)
    first, *others = client.connect(FIRST), client.connect(SECOND), client.connect(THIRD)
    client.send(first, "z")
    client.refuse(first, "a")
    letters = iter("bcdefghijklmnopqrst")
    accepted = [client.send(other, next(letters)) for _ in range(5) for other in (*others, first)]
    assert accepted.count(False) <= 2 * depth - 1

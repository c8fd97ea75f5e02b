"""Producers of old, modelled: real bytes, retries on new connections, batches regrouped, time-outs, giving up."""

from collections import deque
from random import Random
from typing import Final

import trio

from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.messages import ErrorCode, Message
from kproxy.codec.sequence import advance
from verification.simulation.frames import FrameIO
from verification.simulation.history import GIVEN_UP, Attempt, History, Sent, State
from verification.simulation.link import Link
from verification.simulation.network import Host
from verification.simulation.plan import TOPIC, ClientPlan, instance_name
from verification.simulation.record_sets import record_set
from verification.simulation.virtual_io import VirtualIO

#: One request: its batches by partition.
Request = dict[int, list[Sent]]
#: Host and port.
Place = tuple[str, int]
#: kproxy's option says that clients have five requests in flight at most (clients.in.flight).
_EVIDENT_BEHIND: Final = 7
#: Of a client that was seen to pipeline kproxy does not know how many requests wait in its kernel.
_EVIDENT_BEHIND_OTHERS: Final = 1000
#: Seconds after which kproxy takes it that what ends TCP between has passed a response on.
_RELAYED_WITHIN: Final = 1.0
#: Seconds within which kproxy has what was sent to it, and its client what kproxy wrote then, unless a fault holds
#: it up. A response that is read later was written by a kproxy that had all of the round.
_SEEN_WITHIN: Final = 0.2
#: Seconds after a refusal for which kproxy takes a request for one that was made before it was read.
_AWAITED: Final = 0.5
#: Seconds for which a client stays that wants no responses: who closes at once does not mind what becomes of them.
_LINGERS: Final = 30.0
#: Seconds from one look at the time-outs of requests to the next.
_LOOKS_AT_CLOCK: Final = 1.0
#: A program that runs has read what arrived so many seconds ago.
_RUNS: Final = 1.0
_LOST: Final = (OSError, trio.ClosedResourceError, EOFError)


class Client:
    """One process that produces as its plan says, and tries again what it got no good response for."""

    def __init__(self, plan: ClientPlan, host: Host, place: Place, history: History, seed: int) -> None:
        """``place``: where to bootstrap, kproxy's."""
        self.plan = plan
        #: The connection it has, from outside.
        self.link: Link | None = None
        #: A slow reader: takes no response before that time.
        self.reads_from = 0.0
        self._host = host
        self._bootstrap = place
        #: The leader of each partition, as Metadata had it last.
        self._leaders: dict[int, Place] = {}
        self._place: Place | None = None
        #: The instance that it sent records to last.
        self._sent_to = place[0]
        #: Connections to other leaders that it has open beside the one that it uses.
        self._kept: dict[Place, tuple[FrameIO, Link]] = {}
        self._history = history
        self._rng = Random(f"{seed} client {plan.number}")
        self._io: FrameIO | None = None
        self._todo: deque[Request] = deque()
        #: Requests to repeat of a round whose responses are not all read.
        self._of_round: list[Request] = []
        #: When the last request of a round was sent, and whether kproxy has seen so many on this connection.
        self._filled_at = 0.0
        self._seen = False
        self._flight: dict[int, tuple[float, Request]] = {}
        #: The acknowledgements on this connection: the request after which others are evidence, and its records.
        self._had: deque[tuple[int, list[Sent]]] = deque()
        #: The acknowledgements that count as received only after a while, with their times.
        self._told_at: deque[tuple[float, list[Sent]]] = deque()
        self._next = 0
        self._stamped = 0
        #: Of an idempotent client: its id and epoch, and by partition the next sequence.
        self._producer_id = -1
        self._epoch = 0
        #: It raises that once nothing is in flight.
        self._raises = False
        self._sequences: dict[int, int] = {}
        self._due = 0.0
        self._failures = 0
        #: Goes before what is sent again: the next request was made before an error was read.
        self._ahead = False
        self._program = [self._request(nth) for nth in range(len(plan.sends))]

    def _request(self, nth: int) -> Request:
        request: Request = {}
        for partition, values in self.plan.sends[nth].batches:
            labels = [self.plan.labels.label(value, nth + at) for at, value in enumerate(values)]
            request[partition] = [
                Sent(self.plan, nth, partition, value, key=key, headers=headers, at=at)
                for at, (value, key, headers) in enumerate(labels)
            ]
            self._history.records += request[partition]
        return request

    def _say(self, text: str) -> None:
        self._history.note(f"client {self.plan.number} {text}")

    @property
    def waits(self) -> bool:
        """Whether it has sent something that it may send again."""
        return bool(self._todo or self._of_round or self._flight)

    async def run(self) -> None:
        """Runs until all is done or given up."""
        self._due = trio.current_time() + (self.plan.sends[0].gap if self.plan.sends else 0.0)
        while self.waits or self._next < len(self._program):
            try:
                await self._step()
            except _LOST as error:
                self._lost(type(error).__name__)
                await trio.sleep(self._rng.choice(self.plan.backoffs))
        if self._io is not None:
            await trio.sleep(_LINGERS if self.plan.acks == 0 else 0.01)
            if self._io.ended:
                self._history.troubled.add(self.plan.number)
            self._close()
            self._say("is done")
        for io, _ in self._kept.values():
            io.close()

    # -- what to do next

    def has(self, link: Link) -> bool:
        """Whether this connection is one of its own, or the one of a balancer for it."""
        own = [kept for _, kept in self._kept.values()]
        if self.link is not None:
            own.append(self.link)
        return any(link in (one, one.beyond) for one in own)

    async def _step(self) -> None:
        if self._io is not None and not self._flight:
            if self.plan.closes_each and self._io.next_id > 1:
                self._leave()
            elif self._goes_elsewhere():
                self._keep()
        if self.plan.closes_each and not self.waits and self._next < len(self._program):
            await trio.sleep_until(self._due)
        if self._io is None:
            await self._connect()
        if not self._flight or not self._holds_back():
            await self._fill()
        if self._flight:
            await self._await_answer()
        elif self._next < len(self._program):
            await trio.sleep_until(self._due)

    def _leave(self) -> None:
        """Closes the connection in good order; all has been read. The next process, or request, knows nothing of it."""
        self._say("closes its connection")
        self._close()
        self._place = None
        self._leaders.clear()

    async def _fill(self) -> None:
        self._todo.extendleft(reversed(self._of_round))
        self._of_round.clear()
        if self._raises and not self._flight:
            self._raise_epoch()
        until = trio.current_time() + self.plan.fills_for
        while len(self._flight) < self.plan.depth:
            if request := self._choose():
                await self._send(request)
            elif self._next < len(self._program) and self._due <= until:
                await trio.sleep_until(self._due)
            else:
                break
        self._filled_at = trio.current_time()

    def _choose(self) -> Request | None:
        fresh = self._next < len(self._program) and trio.current_time() >= self._due
        ahead, self._ahead = self._ahead, False
        if self._todo and not (ahead and fresh):
            request = self._retry()
            if self.plan.renews_timestamps:
                self._stamp_all(request)
            return request
        if not fresh:
            return None
        request = self._program[self._next]
        self._next += 1
        if self._next < len(self._program):
            self._due = trio.current_time() + self.plan.sends[self._next].gap
        self._stamp_all(request)
        return request

    def _stamp_all(self, request: Request) -> None:
        for batch in request.values():
            for sent in batch:
                sent.timestamp = self._stamp()

    def _stamp(self) -> int:
        stamp = int((self._host.wall() - self.plan.age) * 1000) // self.plan.clock_ms * self.plan.clock_ms
        if self.plan.in_rounds:
            stamp = self._stamped = max(stamp, self._stamped + 1)
        return stamp

    def _retry(self) -> Request:
        if self.plan.shuffles:
            self._todo.rotate(self._rng.randrange(len(self._todo)))
        request = self._todo.popleft()
        if self.plan.regroup == "split":
            index, batch = next(iter(request.items()))
            if len(batch) > 1:
                half = len(batch) // 2
                self._todo.appendleft({**request, index: batch[half:]})
                return {index: batch[:half]}
        elif self.plan.regroup == "join" and self._todo:
            other = self._todo.popleft()
            return _joined(request, other)
        return request

    # -- the wire

    def _fail_over(self) -> None:
        number = self._rng.randrange(self.plan.instances)
        name = instance_name(number)
        if self._bootstrap[0] != name:
            self._history.moved(self.plan, number)
            self._bootstrap, self._place = (name, self._bootstrap[1]), None
            self._leaders.clear()

    def _first_partition(self) -> int:
        """The first partition of the next request."""
        requests = self._of_round or self._todo or self._program[self._next :] or self._program
        return next(iter(requests[0]))

    def _goes_elsewhere(self) -> bool:
        """Whether what it sends next is for another leader than the one that it has its connection to."""
        return self.plan.keeps_connections and self._leaders.get(self._first_partition()) != self._place

    def _holds_back(self) -> bool:
        """Whether it sends nothing before it has read the responses to all that is in flight."""
        return self.plan.in_rounds or self._raises or self._goes_elsewhere()

    def _keep(self) -> None:
        assert self._io is not None
        assert self.link is not None
        assert self._place is not None
        self._kept[self._place] = self._io, self.link
        self._io = self._place = None
        self._ahead = False  # what goes to another leader goes in order

    async def _connect(self) -> None:
        if self.plan.instances:
            self._fail_over()
        if self.plan.keeps_connections:
            self._place = self._leaders.get(self._first_partition())
        if self._place is None or (self.plan.numbered and self._producer_id < 0):
            self._open(await self._host.connect(*self._bootstrap, 1000))
            self._place = await self._leader()
            if self.plan.numbered:
                await self._identify()
            self._close()
        if self._place in self._kept:
            if self._place[0] != self._sent_to:
                self._history.returned[self.plan.number] += 1
            self._use(*self._kept.pop(self._place))
            return
        if self.plan.renames:
            self._host.name = self._rng.choice((self.plan.host, f"::ffff:{self.plan.host}"))
        self._open(await self._host.connect(*self._place, 1000))

    def _open(self, io: VirtualIO) -> None:
        self._use(FrameIO(io, self.plan.client_id), self._host.newest)
        self._say(f"opens {io.peer_host} as {self._host.newest.number}")

    def _use(self, io: FrameIO, link: Link) -> None:
        self._say(f"uses connection {link.number}")
        self._io, self.link, self._seen = io, link, False
        self._had.clear()
        self._told_at.clear()

    def _forget_leaders(self) -> None:
        self._leaders.clear()
        if not self.plan.keeps_connections:
            self._place = None

    async def _leader(self) -> Place:
        assert self._io is not None
        question = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        await self._io.send(question, 1)
        response: Message | None = None
        with trio.move_on_after(self.plan.request_timeout):
            _, response = await self._io.receive()
        if response is None:
            raise OSError("no answer to Metadata")
        assert isinstance(response, MetadataResponse)
        brokers = {row.node_id: (row.host, row.port) for row in response.brokers}
        rows = [row for topic in response.topics for row in topic.partitions if row.leader_id in brokers]
        self._leaders = {row.partition_index: brokers[row.leader_id] for row in rows}
        first = self._first_partition() if self.plan.keeps_connections else self.plan.sends[0].batches[0][0]
        if first not in self._leaders:
            raise OSError("no leader")
        return self._leaders[first]

    def _raise_epoch(self) -> None:
        """Raises its epoch: what it still has to send gets new numbers, and perhaps other batches."""
        self._raises = False
        self._epoch += 1
        self._sequences.clear()
        self._say(f"raises its epoch to {self._epoch}")
        again = list(self._todo)
        if self.plan.raises == "split":
            again = [half for request in again for half in _halves(request)]
        elif self.plan.raises == "join":
            pairs = [again[at : at + 2] for at in range(0, len(again), 2)]
            again = [pair[0] if len(pair) == 1 else _joined(*pair) for pair in pairs]
        self._todo = deque(again)
        for request in self._todo:
            for sent in _all(request):
                sent.sequence = -1

    def _number(self, batch: list[Sent]) -> tuple[int, int, int] | None:
        """The producer id, epoch and first sequence of a batch, the same however often it is sent under an epoch."""
        if not self.plan.numbered:
            return None
        first = batch[0]
        if first.sequence < 0:
            first.sequence = self._sequences.get(first.partition, 0)
            self._sequences[first.partition] = advance(first.sequence, len(batch))
        return self._producer_id, self._epoch, first.sequence

    async def _identify(self) -> None:
        """Gets a producer id."""
        assert self._io is not None
        while self._producer_id < 0:
            await self._io.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 1)
            response: Message | None = None
            with trio.move_on_after(self.plan.request_timeout):
                _, response = await self._io.receive()
            if not isinstance(response, InitProducerIdResponse):
                raise OSError("no answer to InitProducerId")
            self._producer_id = response.producer_id
            if response.error_code:
                await trio.sleep(0.1)

    async def _send(self, request: Request) -> None:
        assert self._io is not None
        plan = self.plan
        data = [
            ProduceRequestPartitionProduceData(
                index=index,
                records=record_set(
                    plan.magic, plan.codec, [(sent.timestamp, sent.content) for sent in batch], self._number(batch)
                ),
            )
            for index, batch in request.items()
        ]
        message = ProduceRequest(
            acks=plan.acks,
            timeout_ms=plan.timeout_ms,
            topic_data=[ProduceRequestTopicProduceData(name=TOPIC, partition_data=data)],
        )
        number = self._io.next_id
        while self._told_at and trio.current_time() - self._told_at[0][0] >= _RELAYED_WITHIN:
            self._had.append((number, self._told_at.popleft()[1]))
        self._say(f"sends {number}: {_show(request)}")
        for sent in _all(request):
            sent.state = State.OK if sent.state is State.OK else State.OPEN
            sent.tries, sent.evident = sent.tries + 1, False
        if plan.acks:
            self._flight[number] = (trio.current_time() + plan.request_timeout, request)
        assert self.link is not None
        up = self.link.up
        if self._place is not None:
            self._sent_to = self._place[0]
        down = self.link.down
        if (down.inbox or self._io.has_answer) and trio.current_time() - down.heard_at >= _RUNS:
            self._history.stood_still.add(plan.number)
        with trio.move_on_at(self._write_until()) as scope:
            await self._io.send(message, plan.version, silent=plan.acks == 0)
        attempt = Attempt(self.link, up.written, up.last_arrival)
        for sent in _all(request):
            self._history.sends(sent, attempt)
        if scope.cancelled_caught:
            raise OSError("timed out in a write")

    def _write_until(self) -> float:
        """The time at which it gives up a write that does not end: its oldest request's time-out, as of any other."""
        now = trio.current_time()
        oldest = min((deadline for deadline, _ in self._flight.values()), default=now + self.plan.request_timeout)
        return max(oldest, now + _LOOKS_AT_CLOCK)

    def _find_evident(self, number: int) -> None:
        """A response to a request so far back shows kproxy that the first was received, however many are in flight."""
        depth = self._history.depths.get((self.plan.client_id, self.plan.host), self.plan.depth)
        behind = _EVIDENT_BEHIND if depth == 1 else _EVIDENT_BEHIND_OTHERS
        while self._had and self._had[0][0] + behind + depth < number:
            for sent in self._had.popleft()[1]:
                sent.evident = not sent.amiss  # a late one may have been discarded

    async def _await_answer(self) -> None:
        assert self._io is not None
        if trio.current_time() < self.reads_from and not self._io.has_answer:  # clients handle all that they have read
            await trio.sleep_until(self.reads_from)
        deadline = min(deadline for deadline, _ in self._flight.values())
        more = len(self._flight) < self.plan.depth and self._next < len(self._program) and not self._holds_back()
        answer: tuple[int, Message] | None = None
        with trio.move_on_at(min(deadline, self._due) if more else deadline):
            answer = await self._io.receive()
        if answer is not None:
            self._answered(*answer)
        elif trio.current_time() >= deadline:
            self._timed_out(deadline)

    def _timed_out(self, deadline: float) -> None:
        self._raises |= bool(self.plan.raises)
        self._history.disturb(self.plan)
        if self.plan.closes_on_timeout:
            raise OSError("timed out")
        assert self.link is not None
        # kproxy may have read a held up request late, and answered it in time; that of a response it knows
        is_known = self._history.is_timed(self.plan) and self.link.beyond is None
        held_until = self.link.up.held_until if is_known else self.link.held_until
        for number, (until, request) in list(self._flight.items()):
            if until == deadline:
                self._say(f"times out {number}")
                del self._flight[number]
                self._history.goes_amiss(_all(request))
                for sent in _all(request):
                    sent.unseen |= held_until > deadline - self.plan.request_timeout
                self._again([request])

    # -- what came of it

    def _answered(self, number: int, response: Message) -> None:
        self._failures = 0
        entry = self._flight.pop(number, None)
        if entry is None:
            self._say(f"throws the late answer to {number} away")
            return
        late = trio.current_time() - self._there_since(*entry) >= GIVEN_UP * self.plan.timeout_ms / 1000
        if late:
            self._history.disturb(self.plan)  # kproxy has to assume that it has given up
        request = dict(entry[1])
        assert self.link is not None
        self.link.rounds.append((entry[0] - self.plan.request_timeout, trio.current_time()))
        again: Request = {}
        said = []
        assert isinstance(response, ProduceResponse)
        for topic in response.responses:
            for row in topic.partition_responses:
                said.append(f"{row.index}:{_error(row.error_code)}@{row.base_offset}")
                batch = request.pop(row.index)
                if self._told(batch, row.error_code, row.base_offset):
                    again[row.index] = batch
        self._say(f"reads {number}: {' '.join(said)}")
        if request:
            self._history.breaks("every request is answered", f"the answer to {number} leaves out {list(request)}")
        self._find_evident(number)
        if again or late:
            self._history.goes_amiss(_all(entry[1]))
        else:
            for sent in _all(entry[1]):
                sent.amiss = False
        self._note_held_up(entry[0], again)
        self._note_unseen_round(again)
        if not again:  # with an error in the response nothing shows that a success was received: all may be retried
            self._note_told(number, [sent for sent in _all(entry[1]) if sent.state is State.OK])
        else:
            self._history.disturb(self.plan)
            self._ahead = self.plan.ready and not self._todo
            self._note_refused(entry[1], again)
            self._again([entry[1] if self.plan.repeats_whole else again])

    def _there_since(self, deadline: float, request: Request) -> float:
        """The time since which kproxy has to assume that a request was there (trio's clock).

        It reads nothing while an earlier one waits: what arrives then may have come at any time since it read all that
        was there.
        """
        sent_at = deadline - self.plan.request_timeout
        assert self.link is not None
        if self.link.beyond is not None:
            return sent_at
        arrived = next(sent.attempts[-1].arrives for sent in _all(request))
        return min(sent_at, self.link.up.unread_since(arrived))

    def _note_refused(self, request: Request, again: Request) -> None:
        for index, batch in request.items():
            for sent in batch:
                sent.refused |= index in again
                sent.beside |= index not in again and self.plan.repeats_whole

    def _note_told(self, number: int, told: list[Sent]) -> None:
        if self._history.is_relayed(self.plan):
            self._told_at.append((trio.current_time(), told))
        else:
            self._had.append((number, told))

    def _told(self, batch: list[Sent], error_code: int, base_offset: int) -> bool:
        """Records the result of one batch; returns whether it has to be sent again."""
        if error_code:
            if error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._forget_leaders()
            if ErrorCode(error_code).retriable:
                return True
            for sent in batch:
                sent.state = State.REFUSED
            self._history.breaks(
                "no error without a cause", f"{_error(error_code)} for {_show({batch[0].partition: batch})}"
            )
            return False
        for at, sent in enumerate(batch):
            if sent.state is State.OK:
                continue  # it was answered before, and sent again with the rest of its request
            sent.state, sent.order = State.OK, self._history.acknowledged
            sent.answered_at = trio.current_time()
            sent.offset = base_offset + at if base_offset >= 0 else -1
            self._history.acknowledged += 1
        return False

    def _again(self, requests: list[Request]) -> None:
        again = []
        for request in requests:
            kept = {index: batch for index, batch in request.items() if batch[0].tries < self.plan.tries}
            if kept:
                again.append(kept)
            for index, batch in request.items():
                if index not in kept:
                    self._raises |= bool(self.plan.raises)
                    self._say(f"gives up {_show({index: batch})}")
        if self.plan.in_rounds:
            self._of_round += again
        else:
            self._todo.extendleft(reversed(again))
        if self.plan.ready or self.plan.numbered:  # after the batches that precede it again
            self._todo = deque(sorted(self._todo, key=_place_in_order))

    def _lost(self, why: str) -> None:
        number = self.link.number if self.link is not None else "none"
        self._say(f"lost connection {number} ({why})")
        self._history.disturb(self.plan)
        if self._io is not None:
            self._close()
        self._failures += 1
        if self._failures > 2 or self.plan.keeps_connections:
            self._place = None
            self._leaders.clear()
        for deadline, request in self._flight.values():
            self._note_held_up(deadline, request)
        flight = [request for _, request in self._flight.values()]
        self._flight.clear()
        self._again(flight)

    def _note_held_up(self, deadline: float, again: Request) -> None:
        """A refusal that came late, or what was ready and came long after it: kproxy waits ``_AWAITED`` for a retry."""
        if self.link is None or not self.plan.ready:
            return
        held = max(self.link.held_until, self.reads_from) > deadline - self.plan.request_timeout
        if held or self.link.round_trip > _AWAITED:
            for request in (again, *self._todo):
                _hold_up(request)

    def _note_unseen_round(self, again: Request) -> None:
        """A client that was never seen to pipeline is taken for one that waits, and has one request ready at most."""
        if not self.plan.in_rounds:
            return
        assert self.link is not None
        since = max(self._filled_at, self.link.held_until)
        if len(self._flight) + 1 == self.plan.depth and trio.current_time() - since > _SEEN_WITHIN:
            self._seen = True
        elif not self._seen:
            _hold_up(again)

    def _close(self) -> None:
        if self._io is not None:
            if self.link is not None:
                self.link.left_unread |= self._io.has_answer
            self._io.close()
            self._io = None


def _all(request: Request) -> list[Sent]:
    return [sent for batch in request.values() for sent in batch]


def _place_in_order(request: Request) -> tuple[int, int]:
    """Orders requests as they were made, and the halves of one by their records."""
    return min((sent.nth, sent.at) for sent in _all(request))


def _joined(one: Request, other: Request) -> Request:
    both = {index: one.get(index, []) + other.get(index, []) for index in dict.fromkeys([*one, *other])}
    # inside a batch clients keep the order in which records were first given to them
    return {index: sorted(batch, key=lambda sent: (sent.nth, sent.at)) for index, batch in both.items()}


def _halves(request: Request) -> list[Request]:
    """The first halves of a request's batches, and the second ones."""
    first = {index: batch[: (len(batch) + 1) // 2] for index, batch in request.items()}
    second = {index: batch[len(first[index]) :] for index, batch in request.items() if len(batch) > 1}
    return [first, second] if second else [first]


def _hold_up(request: Request) -> None:
    for sent in _all(request):
        sent.held_up = True


def _show(request: Request) -> str:
    return " ".join(f"{index}:[{' '.join(sent.value.decode() for sent in batch)}]" for index, batch in request.items())


def _error(code: int) -> str:
    return ErrorCode(code).name

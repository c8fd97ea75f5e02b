"""Clients of several kinds: each connects, does its part, and leaves."""

import random
import time
from collections.abc import Callable
from typing import Final

import trio

from kproxy.codec._generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kproxy.codec._generated.produce import (
    ProduceRequest,
    ProduceRequestPartitionProduceData,
    ProduceRequestTopicProduceData,
    ProduceResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.compression import GZIP, LZ4, NONE
from kproxy.codec.message_formats import from_v2
from kproxy.codec.messages import ErrorCode
from kproxy.testing.cluster_client import EARLIEST, LATEST, ClusterClient
from verification.chaos.coordinator_link import GROUP, CoordinatorLink
from verification.chaos.link import Address, LinkLost
from verification.chaos.raw_transactions import FIRST, RawTransactions

TOPIC: Final = "soak"
PARTITIONS: Final = 4
_OLD, _MODERN = 2, 9
_OLD_FETCH, _MODERN_FETCH = 2, 11
#: Bytes of a batch's records: as many batches have 1 to 10 KB as have 100 KB to 1 MB.
_SMALL, _LARGE = 200, 900_000
_CODECS: Final = (NONE, NONE, GZIP, LZ4)
_MOST_REQUESTS: Final = 5
_FETCH_BYTES: Final = 4 << 20
_TAIL_RECORDS: Final = 200
_GROUPS: Final = 8
_COMMITS: Final = 60
_PAUSE_SECONDS: Final = 0.5
_NO_COORDINATOR: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_ROOMY: Final = 1 << 24


class Unserved(Exception):
    """A client received an error, or no response."""


class Client:
    """One client; ``chance`` decides what it does, ``name`` is its client id.

    No two clients may have one transactional id at the same time.
    """

    def __init__(self, bootstrap: str, name: str, transactional_id: str, chance: random.Random) -> None:
        self._bootstrap = bootstrap
        self.name = name
        self._transactional_id = transactional_id
        self._chance = chance
        self._partition = chance.randrange(PARTITIONS)

    def produce(self) -> None:
        """Writes batches of format v2."""
        self._produce(_MODERN)

    def produce_old(self) -> None:
        """Writes message sets of magic 1, as clients before 0.11 do."""
        self._produce(_OLD)

    def lose_response(self) -> None:
        """Writes, leaves without the response, and sends the same batch again over a new connection."""
        request, version = self._request(_MODERN), _MODERN
        with self._connect() as client:
            client.leader(TOPIC, self._partition).send(request, version)
        with self._connect() as client:
            self._ask(client, request, version)

    def consume(self) -> None:
        """Reads what was written last."""
        self._consume(_MODERN_FETCH)

    def consume_old(self) -> None:
        """The same as message sets of magic 1."""
        self._consume(_OLD_FETCH)

    def commit_offset(self) -> None:
        """Stores an offset for a group that has no members."""
        group = f"soak-{self._chance.randrange(_GROUPS)}"
        with self._connect() as client:
            end = client.offset(TOPIC, self._partition, LATEST)
        row = OffsetCommitRequestPartition(self._partition, end, committed_metadata="")
        topic = OffsetCommitRequestTopic(TOPIC, partitions=[row])
        trio.run(self._commit, OffsetCommitRequest(group, topics=[topic]))

    def transact(self) -> None:
        """Writes to two partitions in a transaction, which is committed or aborted."""
        trio.run(self._transact)

    def leave_half_way(self) -> None:
        """Sends the beginning of a long request, and ends the connection."""
        with self._connect() as client:
            size = self._chance.randrange(1000, _LARGE)
            client.any_broker().send_bytes((size * 2).to_bytes(4, "big") + bytes(8) + bytes(size))

    @property
    def _address(self) -> Address:
        host, _, port = self._bootstrap.rpartition(":")
        return host, int(port)

    def _connect(self) -> ClusterClient:
        return ClusterClient(self._bootstrap, client_id=self.name)

    def _produce(self, version: int) -> None:
        with self._connect() as client:
            for _ in range(self._chance.randint(1, _MOST_REQUESTS)):
                self._ask(client, self._request(version), version)

    def _request(self, version: int) -> ProduceRequest:
        size = int(_SMALL * (_LARGE / _SMALL) ** self._chance.random())
        value = self._chance.randbytes(size // 4)
        now = int(time.time() * 1000)
        records = [Record(number, now + number, None, value, ()) for number in range(4)]
        data = bytes(build_batch(records, codec=self._chance.choice(_CODECS)))
        if version < 3:
            old = from_v2(data, magic=1, first_offset=0, max_decompressed_bytes=_ROOMY, max_bytes=_ROOMY)
            data = bytes(old.data)
        row = ProduceRequestPartitionProduceData(index=self._partition, records=data)
        topic = ProduceRequestTopicProduceData(name=TOPIC, partition_data=[row])
        return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])

    def _ask(self, client: ClusterClient, request: ProduceRequest, version: int) -> None:
        answer = client.leader(TOPIC, self._partition).call(request, version, ProduceResponse)
        self._check(answer.responses[0].partition_responses[0].error_code)

    def _consume(self, version: int) -> None:
        with self._connect() as client:
            start, end = (client.offset(TOPIC, self._partition, which) for which in (EARLIEST, LATEST))
            first = max(start, end - _TAIL_RECORDS)
            found = client.fetch(TOPIC, self._partition, first, max_bytes=_FETCH_BYTES, version=version)
        code = found.responses[0].partitions[0].error_code
        if code != ErrorCode.OFFSET_OUT_OF_RANGE:  # the records may have been deleted meanwhile
            self._check(code)

    async def _commit(self, request: OffsetCommitRequest) -> None:
        """As often as the group has no coordinator yet, which takes a real broker a while for its first group."""
        link = CoordinatorLink(self._address, self.name, request.group_id, GROUP)
        try:
            for _ in range(_COMMITS):
                code = await self._commit_once(link, request)
                if code not in _NO_COORDINATOR:
                    break
                link.close()
                await trio.sleep(_PAUSE_SECONDS)
        finally:
            link.close()
        self._check(code)

    async def _commit_once(self, link: CoordinatorLink, request: OffsetCommitRequest) -> int:
        try:
            answer = await link.call(request, 2, OffsetCommitResponse)
        except LinkLost:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return answer.topics[0].partitions[0].error_code

    async def _transact(self) -> None:
        producer = RawTransactions(self._address, self.name, self._transactional_id, FIRST)
        places = [(TOPIC, partition) for partition in range(2)]
        try:
            identity = await producer.init()
            await producer.add_partitions(places)
            for place in places:
                await producer.write(place, producer.batch(place, ["x" * _SMALL]))
            await producer.end(identity, commit=self._chance.random() < 0.5)
        finally:
            producer.close()

    def _check(self, error_code: int) -> None:
        if error_code:
            raise Unserved(f"{self.name}: error code {error_code}")


#: What a client does, and how often of 20 times.
KINDS: Final[tuple[tuple[Callable[[Client], None], int], ...]] = (
    (Client.produce, 4),
    (Client.produce_old, 4),
    (Client.lose_response, 2),
    (Client.consume, 3),
    (Client.consume_old, 3),
    (Client.commit_offset, 1),
    (Client.transact, 2),
    (Client.leave_half_way, 1),
)

"""Faults, written straight to the broker and into the transaction log: one of each finding.

They go into the topics of a clean run, whose audit has carried over what it saw of two producers.
"""

import time
from collections.abc import Sequence
from typing import Final

from kproxy.codec._generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeProducersResponse,
)
from kproxy.codec.batch import Record, build_batch
from kproxy.codec.messages import Message
from kproxy.testing.cluster_client import ClusterClient
from kproxy.txn.ids import Producer, log_partition
from kproxy.txn.log_records import Entry, encode
from tests.txn.bodies import claim, decision, mirrored, offsets, partitions, prepare, producer

LOG: Final = "__kproxy_transaction_state"
LOG_PARTITIONS: Final = 16
ORDERS: Final = "audited-orders"
BILLS: Final = "audited-bills"
PATIENCE_S: Final = 60.0
BEHIND: Final = "planted-group"
"""A group whose offset of ORDERS-0 is to be lower than 5."""
BEFORE: Final = (5000, 5001)
"""Producer ids that have written three records each before the first audit."""


class Planter:
    """Writes to a broker what no kproxy would."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def write(
        self,
        topic: str,
        partition: int,
        keys: Sequence[str | None],
        who: Producer | None,
        sequence: int,
        age_s: int = 0,
    ) -> int:
        """A batch with a record for each key; the offset after it."""
        now = time.time_ns() // 1_000_000 - 1000 * age_s
        records = [Record(at, now, key and key.encode(), b"value") for at, key in enumerate(keys)]
        identity = {} if who is None else {"producer_id": who.producer_id, "producer_epoch": who.epoch}
        batch = build_batch(records, base_sequence=sequence, **identity)
        answer = self._client.produce(topic, partition, batch)
        assert answer.error_code == 0, answer
        return answer.base_offset + len(keys)

    def note(self, name: str, *bodies: Message) -> None:
        """Records of the transaction log, as one batch."""
        self._append([encode(Entry(name, body)) for body in bodies], log_partition(name, LOG_PARTITIONS))

    def _append(self, pairs: Sequence[tuple[bytes, bytes]], partition: int) -> None:
        records = [Record(at, 0, *pair) for at, pair in enumerate(pairs)]
        assert self._client.produce(LOG, partition, build_batch(records)).error_code == 0

    def wait_until_forgotten(self, topic: str, partition: int, producer_ids: Sequence[int]) -> None:
        """Until the broker knows nothing of the producers: it takes any sequence of them then."""
        request = DescribeProducersRequest([DescribeProducersRequestTopicRequest(topic, [partition])])
        deadline = time.monotonic() + PATIENCE_S
        while True:
            response = self._client.leader(topic, partition).call(request, 0, DescribeProducersResponse)
            known = {row.producer_id for row in response.topics[0].partitions[0].active_producers}
            if not known & set(producer_ids):
                return
            assert time.monotonic() < deadline, known
            time.sleep(0.1)

    def before(self) -> None:
        """What is in order, and will not be any more."""
        for producer_id in BEFORE:
            keys = [f"{producer_id}-{at}" for at in range(3)]
            self.write(ORDERS, 0, keys, Producer(producer_id, 0), 0)

    def faults(self) -> None:
        """One fault of each kind but one, and two torn partitions."""
        twice, gap = (Producer(producer_id, 0) for producer_id in BEFORE)
        self.wait_until_forgotten(ORDERS, 0, BEFORE)
        self.write(ORDERS, 0, [None] * 3, twice, 0)  # duplicate_sequences
        self.write(ORDERS, 0, [None] * 2, gap, 10)  # sequence_gaps
        self.write(ORDERS, 1, ["one-key", "one-key"], Producer(5002, 0), 0)  # duplicate_keys
        for _ in range(2):  # identical_runs, and unprotected
            self.write(BILLS, 0, [None] * 4, None, -1)
        self._torn()
        self._waiting()
        self._behind()

    def unreadable(self) -> None:
        """unreadable_log, after which nothing else can be judged."""
        self._append([(b"\0\0c\0\0", b"\0\0")], LOG_PARTITIONS - 1)

    def _torn(self) -> None:
        """Of the transaction's batches one lacks at the end of a partition, and all in another."""
        torn = producer(6000, 0)
        base = self.write(ORDERS, 1, [None] * 2, torn, 0) - 2
        lacking = self.write(ORDERS, 1, [None], Producer(5003, 0), 0) - 1
        missing = self.write(BILLS, 0, [None], Producer(5003, 0), 0) - 1
        written = {(ORDERS, 1): {0: base, 2: lacking}, (BILLS, 0): {0: missing}}
        self.note(
            "torn",
            claim(1, torn),
            partitions(1, torn, {(ORDERS, 1): 0, (BILLS, 0): 0}),
            decision(1, torn, True, [torn], copies={torn: written}),
        )

    def _waiting(self) -> None:
        """open_transactions and stuck_partitions, prepared_transactions, unknown_producers."""
        hanging, prepared, unknown = producer(6001, 0), producer(6002, 0), producer(6003, 0)
        places = {(BILLS, 1): 0}
        patient = claim(1, hanging)
        patient.transaction_timeout_ms = (1 << 31) - 1
        self.note("hanging", patient, partitions(1, hanging, places))
        self.write(BILLS, 1, [None], hanging, 0, age_s=3600)
        self.note("prepared", claim(1, prepared), partitions(1, prepared, places), prepare(1, prepared))
        self.write(BILLS, 1, [None], unknown, 0)

    def _behind(self) -> None:
        """group_offsets_behind and unknown_groups: kproxy's log says that the broker has the offsets already."""
        for group, producer_id in ((BEHIND, 6004), ("deleted-group", 6005)):
            owner = producer(producer_id, 0)
            self.note(
                group,
                claim(1, owner),
                offsets(1, owner, group, {(ORDERS, 0): 5}),
                decision(1, owner, True, [owner]),
                mirrored(owner, group),
            )

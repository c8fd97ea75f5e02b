"""kproxy in front of a Kafka that decides the transactions, and what is to be seen of them at the broker itself."""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, TopicPartition

from kproxy.codec._generated.describe_transactions import DescribeTransactionsRequest
from kproxy.codec.batch import BatchHeader, read_header
from kproxy.testing.kafka import RealKafka
from kproxy.testing.raw_connection import RawConnection
from tests.interop.proxy import KproxyProcess
from tests.support.patience import PATIENCE_S, eventually

if TYPE_CHECKING:
    from kproxy.codec._generated.describe_transactions import DescribeTransactionsResponse


@dataclass
class Stage:
    """kproxy in front of a broker, and a topic with one partition."""

    kafka: RealKafka
    kproxy: KproxyProcess
    name: str

    def read(self) -> list[tuple[int, str]]:
        """Offset and value of what a read_committed consumer finds at the broker, up to where all is decided."""
        eventually(lambda: not self.state()[0].startswith("Prepare"))
        options = {"bootstrap.servers": self.kafka.bootstrap, "group.id": uuid4().hex, "enable.partition.eof": True}
        consumer = Consumer(options)
        consumer.assign([TopicPartition(self.name, 0, 0)])
        found = []
        try:
            while True:
                message = consumer.poll(PATIENCE_S)
                assert message is not None
                error = message.error()
                if error is None:
                    found.append((message.offset() or 0, (message.value() or b"").decode()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
        finally:
            consumer.close()

    def values(self) -> list[str]:
        """Their values alone."""
        return [value for _, value in self.read()]

    def state(self) -> tuple[str, int]:
        """The state of the transactional id at the broker, and its epoch there."""
        with RawConnection("127.0.0.1", self.kafka.ports[0]) as broker:
            answer: DescribeTransactionsResponse = broker.call(DescribeTransactionsRequest([self.name]), 0)
        [row] = answer.transaction_states
        return row.transaction_state, row.producer_epoch


def headers_in(data: bytes) -> list[BatchHeader]:
    """The headers of the batches in a log."""
    headers, at = [], 0
    while at < len(data):
        headers.append(read_header(data, at))
        at += headers[-1].size
    return headers

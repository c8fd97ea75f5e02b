"""Tells in the trace what reaches the brokers."""

from typing import Final

import trio

from kproxy.codec.batch import read_header
from kproxy.codec.messages import ApiKey
from kproxy.testing.fake_broker import Call, FakeCluster
from verification.simulation.history import History

#: Enough of a producer id to tell it from others; kproxy's have a high bit set.
_SHORT: Final = 0xFFFF


def watch_brokers(cluster: FakeCluster, history: History) -> None:
    """Notes each batch and each marker on its arrival, whatever becomes of it."""

    def produce(call: Call) -> None:
        history.last_produce = max(history.last_produce, trio.current_time())
        for topic in call.request.topic_data:
            for part in topic.partition_data:
                header = read_header(part.records)
                history.note(
                    f"broker {call.broker_id} gets {topic.name} {part.index}: {header.record_count} records of "
                    f"{header.producer_id & _SHORT}/{header.producer_epoch}/{header.base_sequence}"
                )

    def markers(call: Call) -> None:
        for marker in call.request.markers:
            places = [f"{topic.name} {list(topic.partition_indexes)}" for topic in marker.topics]
            history.note(
                f"broker {call.broker_id} gets a marker of {marker.producer_id & _SHORT}/{marker.producer_epoch} "
                f"for {', '.join(places)}"
            )

    cluster.control(ApiKey.PRODUCE, produce)
    cluster.control(ApiKey.WRITE_TXN_MARKERS, markers)

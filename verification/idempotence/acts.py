"""The troubles of a cluster while a client writes: each act is one of them, once."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Final, NamedTuple

import trio

from kproxy.codec._generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestReassignablePartition,
    AlterPartitionReassignmentsRequestReassignableTopic,
    AlterPartitionReassignmentsResponse,
)
from kproxy.codec._generated.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestDeleteRecordsPartition,
    DeleteRecordsRequestDeleteRecordsTopic,
    DeleteRecordsResponse,
)
from kproxy.codec._generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopicRequest,
    DescribeProducersResponse,
)
from kproxy.codec._generated.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestWritableTxnMarker,
    WriteTxnMarkersRequestWritableTxnMarkerTopic,
    WriteTxnMarkersResponse,
)
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from kproxy.testing.relay import Faults
from tests.interop.lossy import Written
from tests.interop.records import PARTITIONS
from verification.chaos.kproxy_process import KproxyProcess

_RAISED_BY: Final = 3
_DOWN_S: Final = 4.0
_FROZEN_S: Final = 2.5
_MOVED_WITHIN_MS: Final = 30_000
#: Until a leader has taken a follower that stands still from its in-sync replicas (``replica.lag.time.max.ms``).
_LAGS_S: Final = 4.0


class Place(NamedTuple):
    """The place where a client connects, and the programs that serve it."""

    bootstrap: str
    kafka: RealKafka
    faults: Faults
    kproxy: KproxyProcess | None = None


class Site(Enum):
    """The brokers of a trial: how many there are, and their settings."""

    ALONE = 1, dict[str, str]()
    #: A silent one is noticed within seconds, and a stale one may lead where a topic says so.
    CLUSTER = (
        3,
        {
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "replica.lag.time.max.ms": "1500",
            "unclean.leader.election.interval.ms": "500",
        },
    )
    #: It forgets a producer that has not written for a second.
    FORGETFUL = 1, {"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "100"}

    @property
    def brokers(self) -> int:
        """The number of brokers."""
        return self.value[0]

    @property
    def settings(self) -> Mapping[str, str]:
        """Their settings."""
        return self.value[1]


class Pace(NamedTuple):
    """A client's pauses."""

    #: It pauses after each so many records, for so long.
    records: int
    ms: int


class Kind(NamedTuple):
    """One kind of trial."""

    act: Callable[[Place, str, Written], None]
    about: str
    site: Site = Site.ALONE
    #: How often, and how long after the last time, in seconds.
    times: int = 6
    between_s: float = 1.5
    #: Of the topic: the brokers of each partition, the leader first, and its settings.
    places: Sequence[Sequence[int]] = ((1,),) * PARTITIONS
    config: Mapping[str, str] = {}
    #: Whether acknowledged records are lost: then a client may be told, and may give up.
    loses: bool = False
    #: Whether it happens to kproxy, so that there is no trial without it.
    is_of_kproxy: bool = False
    pace: Pace | None = None
    #: Whether clients give a record up after a second: those that have such a time-out.
    is_hasty: bool = False


def _freeze(place: Place, topic: str, _: Written) -> None:
    """Has the only broker stand still for longer than hasty clients wait."""
    place.kafka.pause(0)
    try:
        time.sleep(_FROZEN_S)
    finally:
        place.kafka.resume(0)
    _wait_served(place.kafka, topic)


def _nothing(*_: object) -> None:
    pass


def _restart(place: Place, topic: str, _: Written) -> None:
    kafka = place.kafka
    kafka.kill(0)
    kafka.restart(0)
    _wait_served(kafka, topic)


def _delete_all(place: Place, topic: str, written: Written) -> None:
    """Deletes all that was written so far, and restarts the broker, which keeps nothing of the producers then."""
    kafka = place.kafka
    written.read(kafka.bootstrap, topic)
    with ClusterClient(kafka.bootstrap) as client:
        parts = [
            DeleteRecordsRequestDeleteRecordsPartition(partition_index=partition, offset=written.ends[partition])
            for partition in range(PARTITIONS)
        ]
        ask = DeleteRecordsRequest(
            topics=[DeleteRecordsRequestDeleteRecordsTopic(name=topic, partitions=parts)], timeout_ms=_MOVED_WITHIN_MS
        )
        client.leader(topic, 0).call(ask, 1, DeleteRecordsResponse)
    _restart(place, topic, written)


def _move(place: Place, topic: str, _: Written) -> None:
    """Moves each partition, with its only replica, to the next broker."""
    kafka = place.kafka
    with ClusterClient(kafka.bootstrap) as client:
        found = client.metadata(topic).topics[0].partitions
        places = {part.partition_index: part.leader_id % kafka.brokers + 1 for part in found if part.leader_id > 0}
        parts = [
            AlterPartitionReassignmentsRequestReassignablePartition(partition_index=index, replicas=[node])
            for index, node in places.items()
        ]
        ask = AlterPartitionReassignmentsRequest(
            topics=[AlterPartitionReassignmentsRequestReassignableTopic(name=topic, partitions=parts)],
            timeout_ms=_MOVED_WITHIN_MS,
        )
        client.controller().call(ask, 0, AlterPartitionReassignmentsResponse)


def _leave_isr(place: Place, topic: str, _: Written) -> None:
    """Kills one of three brokers, so that ``min.insync.replicas`` is not met, and starts it again."""
    kafka = place.kafka
    kafka.kill(kafka.brokers - 1)
    time.sleep(_DOWN_S)
    kafka.restart(kafka.brokers - 1)
    _wait_served(kafka, topic)


def _lose_tail(place: Place, topic: str, _: Written) -> None:
    """Has a follower that stood still lead: what was written since is lost (``unclean.leader.election.enable``)."""
    kafka = place.kafka
    kafka.pause(1)
    try:
        time.sleep(_LAGS_S)
        kafka.kill(0)
    finally:
        kafka.resume(1)
    time.sleep(_LAGS_S)
    kafka.restart(0)
    _wait_served(kafka, topic)


def _raise_epochs(place: Place, topic: str, _: Written) -> None:
    """Fences all producers of the topic, as a program that takes over their ids would."""
    kafka = place.kafka
    ask = DescribeProducersRequest(
        topics=[DescribeProducersRequestTopicRequest(name=topic, partition_indexes=list(range(PARTITIONS)))]
    )
    with ClusterClient(kafka.bootstrap) as client:
        leader = client.leader(topic, 0)
        described = leader.call(ask, 0, DescribeProducersResponse)
        markers = [
            WriteTxnMarkersRequestWritableTxnMarker(
                producer_id=row.producer_id,
                producer_epoch=row.producer_epoch + _RAISED_BY,
                transaction_result=False,
                topics=[
                    WriteTxnMarkersRequestWritableTxnMarkerTopic(name=topic, partition_indexes=[part.partition_index])
                ],
                coordinator_epoch=0,
            )
            for answer in described.topics
            for part in answer.partitions
            for row in part.active_producers
        ]
        if markers:
            leader.call(WriteTxnMarkersRequest(markers=markers), 1, WriteTxnMarkersResponse)


def _kill_kproxy(place: Place, _: str, __: Written) -> None:
    if place.kproxy is not None:
        place.kproxy.kill()
        trio.run(place.kproxy.start)


def _hand_over(place: Place, _: str, __: Written) -> None:
    if place.kproxy is not None:
        trio.run(place.kproxy.hand_over)


def _wait_served(kafka: RealKafka, topic: str) -> None:
    with ClusterClient(kafka.bootstrap) as client:
        for partition in range(PARTITIONS):
            client.wait_served(topic, partition)


KINDS: Final[Mapping[str, Kind]] = {
    "lost": Kind(_nothing, "nothing else happens"),
    "broker": Kind(_restart, "the only broker is killed with -9 and started again"),
    "epochs": Kind(_raise_epochs, "another program raises the epochs of all producer ids"),
    "deleted": Kind(_delete_all, "all records are deleted, and the broker is killed with -9 and started again"),
    "killed": Kind(_kill_kproxy, "kproxy is killed with -9 and started again", is_of_kproxy=True),
    "handed-over": Kind(_hand_over, "kproxy hands over to another process", times=3, is_of_kproxy=True),
    "moved": Kind(
        _move, "each partition, with its only replica, moves to the next of three brokers", site=Site.CLUSTER
    ),
    "expired": Kind(
        _nothing,
        "the broker forgets producers after a second, and the client pauses for longer, again and again",
        site=Site.FORGETFUL,
        pace=Pace(records=300, ms=2_000),
    ),
    "hasty": Kind(
        _freeze,
        "the only broker stands still for 2.5 s, again and again, and the client gives records up after 1 s",
        pace=Pace(records=20, ms=200),
        is_hasty=True,
    ),
    "isr": Kind(
        _leave_isr,
        "one of three brokers is down for some seconds, and min.insync.replicas is not met",
        site=Site.CLUSTER,
        times=2,
        places=((1, 2, 3), (2, 3, 1), (3, 1, 2)),
        config={"min.insync.replicas": "3"},
    ),
    "unclean": Kind(
        _lose_tail,
        "a follower that stood still leads: acknowledged records are lost",
        site=Site.CLUSTER,
        times=1,
        between_s=1.0,
        places=((1, 2), (1, 2), (3, 2)),
        config={"unclean.leader.election.enable": "true"},
        loses=True,
    ),
}


@contextmanager
def meanwhile(kind: Kind, place: Place, topic: str, written: Written) -> Iterator[None]:
    """Does the act again and again until the block ends. Raises what the act raised."""
    ended, failed = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            for _ in range(kind.times):
                if ended.wait(kind.between_s):
                    return
                kind.act(place, topic, written)
        except BaseException as error:
            failed.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        ended.set()
        worker.join()
    if failed:
        raise failed[0]


def names(way: str, site: Site, wanted: Sequence[str]) -> list[str]:
    """The kinds of a way at a site; ``wanted``: only these, or all if there are none."""
    kinds = {name: kind for name, kind in KINDS.items() if way == "kproxy" or not kind.is_of_kproxy}
    return [name for name, kind in kinds.items() if kind.site is site and (not wanted or name in wanted)]

"""The compacted topic in which kproxy notes its lanes: found or made, and looked at."""

from zlib import crc32

import structlog
import trio

from kproxy.codec._generated.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestCreatableTopic,
    CreateTopicsRequestCreatableTopicConfig,
    CreateTopicsResponse,
)
from kproxy.codec._generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestDescribeConfigsResource,
    DescribeConfigsResponse,
)
from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.config import Config
from kproxy.errors import RemoteProtocolError
from kproxy.net.cluster import Cluster
from kproxy.proxy.routing import Address

log = structlog.get_logger("kproxy.lane_log")

TOPIC = "__kproxy_producer_state"
#: Compaction leaves the last segment alone: a small one keeps what a restarted kproxy has to read short.
_SEGMENT_BYTES = 16 << 20
_METADATA, _CREATE, _DESCRIBE = (4, 12), (2, 7), (1, 4)
_CREATE_TIMEOUT_MS = 30_000
_TOPIC_RESOURCE = 2
_KNOWN = frozenset(map(int, ErrorCode))
#: Not called retriable, and yet the next attempt may go well: brokers that come up, a cluster that settles.
_AGAIN = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Refused(Exception):
    """The cluster will not have it, however often it is asked."""

    def __init__(self, what: str, error_code: int) -> None:
        """What was asked for, and Kafka's error code."""
        name = ErrorCode(error_code).name if error_code in _KNOWN else str(error_code)
        super().__init__(f"{what}: {name}")
        self.error_code = error_code


class TopicGone(OSError):
    """The topic, or the partition, is not there (any more, or yet)."""


def check(what: str, error_code: int) -> None:
    """Nothing if ``error_code`` is 0. TopicGone; OSError if another attempt may go well, else Refused."""
    if not error_code:
        return
    if error_code in _GONE:
        raise TopicGone(f"{what}: {TOPIC} is not there")
    if error_code not in _KNOWN or error_code in _AGAIN or ErrorCode(error_code).retriable:
        raise OSError(f"{what} failed with error {error_code}")
    raise Refused(what, error_code)


def partition_of(instance_id: str, partitions: int) -> int:
    """The partition of an instance.

    Fixed for ever: under another rule a restarted or upgraded kproxy would look for its former lanes in a partition
    where they are not. For the same reason the topic's partitions must not be raised. CRC-32 is the same everywhere,
    and it need not spread better than a few hundred names.
    """
    return crc32(instance_id.encode()) % partitions


class LaneTopic:
    """Makes the topic if there is none; one that is there is used as it is."""

    def __init__(self, cluster: Cluster, config: Config) -> None:
        """Asks the brokers that ``cluster`` knows."""
        self._cluster = cluster
        self._config = config

    async def prepare(self) -> int:
        """The number of its partitions. OSError, RemoteProtocolError: try again; Refused."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        metadata = await self._cluster.ask_any(request, _METADATA)
        assert isinstance(metadata, MetadataResponse)
        found = next((topic for topic in metadata.topics if topic.name == TOPIC), None)
        if found is not None and any(found.topic_id):
            self._cluster.map.own_topic_ids.add(found.topic_id)  # clients may name it so, too
        if found is not None and found.partitions and not found.error_code:
            await self._look_at_settings()
            return len(found.partitions)
        if found is not None and found.error_code not in _GONE:
            check("Metadata", found.error_code)
        await self._create(metadata)
        return self._config.producer_state_log_num_partitions

    async def _create(self, metadata: MetadataResponse) -> None:
        config = self._config
        replicas = min(config.producer_state_log_replication_factor, max(1, len(metadata.brokers)))
        settings = {
            "cleanup.policy": "compact",
            "min.insync.replicas": str(min(config.producer_state_log_min_isr, replicas)),
            "segment.bytes": str(_SEGMENT_BYTES),
            "unclean.leader.election.enable": "false",
        }
        topic = CreateTopicsRequestCreatableTopic(
            name=TOPIC,
            num_partitions=config.producer_state_log_num_partitions,
            replication_factor=replicas,
            configs=[CreateTopicsRequestCreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
        )
        # the controller, where brokers don't pass such a request on to it
        place = next(
            (Address(row.host, row.port) for row in metadata.brokers if row.node_id == metadata.controller_id), None
        )
        if place is None:
            raise OSError("the cluster has no controller")
        client = await self._cluster.client(place)
        version = min(_CREATE[1], client.versions.get(ApiKey.CREATE_TOPICS, (0, 0))[1])
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_CREATE_TIMEOUT_MS)
        response = await client.call(request, version, extra_ms=_CREATE_TIMEOUT_MS)
        assert isinstance(response, CreateTopicsResponse)
        for row in response.topics:
            check("CreateTopics", row.error_code)
            if any(row.topic_id):
                self._cluster.map.own_topic_ids.add(row.topic_id)
        log.info("topic made", topic=TOPIC, partitions=topic.num_partitions, replicas=replicas)
        if replicas < config.producer_state_log_replication_factor:
            log.warning(
                "the cluster has fewer brokers than producer.state.log.replication.factor; raise the topic's replicas "
                "when it has more",
                topic=TOPIC,
                replicas=replicas,
                wanted=config.producer_state_log_replication_factor,
            )

    async def _look_at_settings(self) -> None:
        """Warns if the topic would forget lanes, or grow for ever. Who may not look does without."""
        resource = DescribeConfigsRequestDescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=TOPIC, configuration_keys=["cleanup.policy"]
        )
        try:
            response = await self._cluster.ask_any(DescribeConfigsRequest(resources=[resource]), _DESCRIBE)
        except (OSError, RemoteProtocolError):
            return
        assert isinstance(response, DescribeConfigsResponse)
        policies = [row.value for result in response.results for row in result.configs if row.name == "cleanup.policy"]
        if policies and policies[0] != "compact":
            log.warning(
                "topic is not compacted: it may forget producer ids, or never end; set cleanup.policy=compact",
                topic=TOPIC,
                cleanup_policy=policies[0],
            )


async def pause(backoff_ms: int, config: Config) -> int:
    """Waits before the next attempt; the wait before the one behind it, in ms."""
    await trio.sleep(backoff_ms / 1000)
    return min(backoff_ms * 2, config.retry_backoff_max_ms)

"""Asks all that there is to ask of brokers and of this process. It changes nothing, but uses up one producer id."""

import resource
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import trio

from kproxy.codec._generated.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kproxy.codec._generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestDescribeConfigsResource,
    DescribeConfigsResponse,
)
from kproxy.codec._generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from kproxy.codec._generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproxy.codec._generated.metadata import MetadataRequest, MetadataResponse
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.version_choice import NoCommonVersion, choose_version
from kproxy.config import Address, Config
from kproxy.doctor.examined import NOT_TOLD, ClockSkew, Examined, SeenBroker
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.broker_client import BrokerClient
from kproxy.net.brokers.pool import Pool
from kproxy.net.brokers.response_room import ResponseRoom
from kproxy.net.network import Network
from kproxy.proxy.routing import is_own_topic

#: Metadata from here to there may be asked which rights kproxy has (KIP-430).
_RIGHTS_IN_METADATA: Final = range(8, 11)
_TOPICS_RIGHTS_FROM: Final = 8
_NEWEST_METADATA: Final = 12
_TOPIC, _BROKER = 2, 4
#: Topics of users whose settings are asked for, the first by name.
_MOST_TOPICS: Final = 1_000
_USERS_SETTINGS: Final = ("cleanup.policy", "max.message.bytes")
_UNUSED_TIMEOUT_MS: Final = 60_000
_PRODUCER_ID_TRIES: Final = 10
_PAUSE_SECONDS: Final = 0.2
_FAILURES: Final = (OSError, RemoteProtocolError)
_QUORUM_TOPIC: Final = "__cluster_metadata"
#: The first version of DescribeQuorum with timestamps.
_TIMESTAMPS: Final = 1


async def gather(config: Config, network: Network) -> Examined:
    """Everything that can be found out; what is unavailable is left empty.

    Without ``Cluster``, which asks whichever broker answers: here each address is asked, and its failure reported.
    """
    examined = Examined(config, open_files=resource.getrlimit(resource.RLIMIT_NOFILE))
    pool = Pool(network, config, ResponseRoom.of(config))
    try:
        async with trio.open_nursery() as nursery:
            for address in config.bootstrap_servers:
                nursery.start_soon(_bootstrap, examined, pool, address)
        reached = [address for address, error in examined.bootstrap.items() if error is None]
        if reached:
            await _look_around(examined, pool, reached[0])
    finally:
        pool.close()
    return examined


async def _bootstrap(examined: Examined, pool: Pool, address: Address) -> None:
    try:
        async with pool.to(address):
            examined.bootstrap[address] = None
    except _FAILURES as error:
        examined.bootstrap[address] = _text(error)


async def _look_around(examined: Examined, pool: Pool, address: Address) -> None:
    for step in (_metadata, _cluster_rights, _producer_id, _topic_settings, _clock):
        with suppress(*_FAILURES):
            async with pool.to(address) as client:
                await step(examined, client)
    async with trio.open_nursery() as nursery:
        for broker in examined.brokers:
            nursery.start_soon(_look_at_broker, pool, broker)


async def _metadata(examined: Examined, client: BrokerClient) -> None:
    version = choose_version(client.versions, MetadataRequest, (0, _NEWEST_METADATA))
    request = MetadataRequest(topics=None if version else [], allow_auto_topic_creation=False)
    request.include_topic_authorized_operations = version >= _TOPICS_RIGHTS_FROM
    request.include_cluster_authorized_operations = version in _RIGHTS_IN_METADATA
    if version < 4:
        request.allow_auto_topic_creation = True  # it can't be said, and names of all topics make none
    response = await client.call(request, MetadataResponse, (version, version))
    examined.brokers = [SeenBroker(row.node_id, Address(row.host, row.port)) for row in response.brokers]
    examined.topics = {topic.name: topic for topic in response.topics if topic.name is not None}
    if version in _RIGHTS_IN_METADATA:
        examined.cluster_rights = response.cluster_authorized_operations


async def _cluster_rights(examined: Examined, client: BrokerClient) -> None:
    if examined.cluster_rights == NOT_TOLD and ApiKey.DESCRIBE_CLUSTER in client.versions:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await client.call(request, DescribeClusterResponse, (0, 0))
        examined.cluster_rights = response.cluster_authorized_operations


async def _producer_id(examined: Examined, client: BrokerClient) -> None:
    if ApiKey.INIT_PRODUCER_ID not in client.versions:
        return
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_UNUSED_TIMEOUT_MS)
    for _ in range(_PRODUCER_ID_TRIES):
        response = await client.call(request, InitProducerIdResponse, (0, 4))
        examined.producer_id_error = response.error_code
        if response.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return
        await trio.sleep(_PAUSE_SECONDS)


async def _topic_settings(examined: Examined, client: BrokerClient) -> None:
    own = [name for name in examined.topics if is_own_topic(name)]
    users = sorted(examined.users_topics())[:_MOST_TOPICS]
    if own or users:
        resources = [*_resources(_TOPIC, own, None), *_resources(_TOPIC, users, _USERS_SETTINGS)]
        examined.settings = await _settings(client, resources)


def _resources(
    kind: int, names: Iterable[str], keys: tuple[str, ...] | None
) -> list[DescribeConfigsRequestDescribeConfigsResource]:
    wanted = None if keys is None else list(keys)
    return [
        DescribeConfigsRequestDescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=wanted)
        for name in names
    ]


async def _settings(
    client: BrokerClient, resources: list[DescribeConfigsRequestDescribeConfigsResource]
) -> dict[str, Mapping[str, str]]:
    """By name of the resource; those that the broker refuses are left out."""
    if ApiKey.DESCRIBE_CONFIGS not in client.versions:
        return {}
    response = await client.call(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse, (0, 4))
    return {
        result.resource_name: {row.name: row.value or "" for row in result.configs}
        for result in response.results
        if not result.error_code
    }


async def _clock(examined: Examined, client: BrokerClient) -> None:
    examined.clock = await clock_skew(client)


async def clock_skew(client: BrokerClient) -> ClockSkew | None:
    """How far the controller's clock is ahead; None if the brokers do not report it. OSError, RemoteProtocolError.

    DescribeQuorum returns it (KIP-836): a leader has just caught up with itself. No other question that changes nothing
    is answered with a broker's time.
    """
    partitions = [DescribeQuorumRequestPartitionData(partition_index=0)]
    request = DescribeQuorumRequest(
        topics=[DescribeQuorumRequestTopicData(topic_name=_QUORUM_TOPIC, partitions=partitions)]
    )
    asked = time.time()
    try:
        response = await client.call(request, DescribeQuorumResponse, (_TIMESTAMPS, _TIMESTAMPS))
    except NoCommonVersion:
        return None
    answered = time.time()
    leader_ms = _leaders_time(response)
    if leader_ms is None:
        return None
    middle_ms = int((asked + answered) * 500)
    return ClockSkew(leader_ms - middle_ms, int((answered - asked) * 500) + 1)


def _leaders_time(response: DescribeQuorumResponse) -> int | None:
    for topic in response.topics:
        for partition in topic.partitions:
            for voter in partition.current_voters:
                if voter.replica_id == partition.leader_id and voter.last_caught_up_timestamp > 0:
                    return voter.last_caught_up_timestamp
    return None


async def _look_at_broker(pool: Pool, broker: SeenBroker) -> None:
    try:
        async with pool.to(broker.address) as client:
            broker.error = None
            broker.release, broker.features, broker.versions = client.release, client.features, client.versions
            name = str(broker.node_id)
            broker.settings = (await _settings(client, _resources(_BROKER, [name], None))).get(name)
    except _FAILURES as error:
        broker.error = _text(error)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__

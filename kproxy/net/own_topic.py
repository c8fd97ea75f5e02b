"""A topic of kproxy's own: found or made, and its settings looked at."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

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
from kproxy.codec._generated.metadata import MetadataRequestTopic, MetadataResponse
from kproxy.codec.error_codes import NO_TOPIC, error_name, is_retriable
from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.proxy.routing import Address

log = structlog.get_logger("kproxy.own_topic")

_CREATE, _DESCRIBE = (2, 7), (1, 4)
_CREATE_TIMEOUT_MS = 30_000
_TOPIC_RESOURCE = 2
#: Not called retriable, and yet the next attempt may go well: brokers that come up, a cluster that settles.
_AGAIN = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class Refused(Exception):
    """The cluster will not have it, however often it is asked."""

    def __init__(self, what: str, error_code: int) -> None:
        """What was asked for, and Kafka's error code."""
        super().__init__(f"{what}: {error_name(error_code)}")
        self.error_code = error_code


class TopicDeleted(OSError):
    """The topic, or the partition, is not there (any more, or yet)."""


def check(what: str, topic: str, error_code: int) -> None:
    """Nothing if ``error_code`` is 0. TopicDeleted; OSError if another attempt may go well, else Refused."""
    if not error_code:
        return
    if error_code in NO_TOPIC:
        raise TopicDeleted(f"{what}: {topic} is not there")
    if error_code in _AGAIN or is_retriable(error_code, unknown=True):
        raise OSError(f"{what} failed with error {error_code}")
    raise Refused(what, error_code)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What a topic is like that kproxy makes, and what it says where it can't have that."""

    name: str
    partitions: int
    #: Fewer where the cluster has fewer brokers.
    replicas: int
    #: The option that says how many.
    replicas_option: str
    #: Never more than there are replicas.
    min_isr: int
    #: The other settings.
    settings: Mapping[str, str]
    #: By setting, what a topic with another value does wrong.
    wrong: Mapping[str, str]
    #: What it means that the cluster refuses the topic.
    refused: str
    #: The rights that it takes.
    rights: str
    #: By setting, what a topic with another value costs; nothing goes wrong.
    costly: Mapping[str, str] = field(default_factory=dict)
    #: Without it kproxy serves clients as well.
    optional: bool = False

    def harms(self, setting: str, value: str | None) -> bool:
        """Whether a topic with this value of a setting does something wrong."""
        return setting in self.wrong and self._differs(setting, value)

    def costs(self, setting: str, value: str | None) -> bool:
        """Whether a topic with this value of a setting costs more than it has to."""
        return setting in self.costly and self._differs(setting, value)

    def _differs(self, setting: str, value: str | None) -> bool:
        """The order of a list does not matter."""
        return {*(value or "").split(",")} != {*self.settings.get(setting, "").split(",")}


class OwnTopic:
    """Makes the topic if there is none; one that is there is used as it is."""

    def __init__(self, cluster: Cluster, plan: TopicPlan) -> None:
        """Asks the brokers that ``cluster`` knows."""
        self._cluster = cluster
        self._plan = plan
        #: The settings of the plan as the topic has them, as far as that is known once it is prepared.
        self.settings: Mapping[str, str | None] = {}
        #: Its id, 16 bytes; empty: it is not known, or the brokers have none.
        self.topic_id = b""

    @property
    def name(self) -> str:
        """The topic."""
        return self._plan.name

    async def prepare(self, partitions: int | None = None) -> int:
        """The number of its partitions; made if it is not there. OSError, RemoteProtocolError: try again; Refused.

        ``partitions``: how many it is made with, if not as many as planned.
        """
        metadata = await self._metadata()
        count = self._partitions(metadata)
        if count:
            await self._look_at_settings()
            return count
        count = partitions or self._plan.partitions
        await self._create(metadata, count)
        return count

    async def partitions(self) -> int:
        """The number of its partitions, 0 if it is not there. OSError, RemoteProtocolError: try again; Refused."""
        return self._partitions(await self._metadata())

    async def exists(self) -> bool:
        """Whether it is there. As of ``partitions``."""
        return bool(await self.partitions())

    async def _metadata(self) -> MetadataResponse:
        return await self._cluster.metadata.topics([MetadataRequestTopic(name=self.name)])

    def _partitions(self, metadata: MetadataResponse) -> int:
        """How many the topic has; 0 if it is not there."""
        found = next((topic for topic in metadata.topics if topic.name == self.name), None)
        if found is not None and any(found.topic_id):
            self.topic_id = found.topic_id
            self._cluster.map.own_topic_ids.add(found.topic_id)  # clients may name it so, too
        if found is None or found.error_code in NO_TOPIC:
            return 0
        check("Metadata", self.name, found.error_code)
        return len(found.partitions)

    def warn_of_refusal(self, refused: Refused) -> None:
        """Warns of what is unavailable, and names the rights that are missing."""
        grant = f"{self._plan.rights} on topic {self.name}, to kproxy's principal"
        log.warning(self._plan.refused, topic=self.name, error=str(refused), grant=grant)

    async def _create(self, metadata: MetadataResponse, partitions: int) -> None:
        plan = self._plan
        replicas = min(plan.replicas, max(1, len(metadata.brokers)))
        settings = {**plan.settings, "min.insync.replicas": str(min(plan.min_isr, replicas))}
        topic = CreateTopicsRequestCreatableTopic(
            name=plan.name,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[CreateTopicsRequestCreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
        )
        # the controller, where brokers don't pass such a request on to it
        place = next(
            (Address(row.host, row.port) for row in metadata.brokers if row.node_id == metadata.controller_id), None
        )
        if place is None:
            raise OSError("the cluster has no controller")
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_CREATE_TIMEOUT_MS)
        response = await self._cluster.call(place, request, CreateTopicsResponse, _CREATE, extra_ms=_CREATE_TIMEOUT_MS)
        for row in response.topics:
            check("CreateTopics", plan.name, row.error_code)
            if any(row.topic_id):
                self.topic_id = row.topic_id
                self._cluster.map.own_topic_ids.add(row.topic_id)
        self.settings = settings
        log.info("topic created", topic=plan.name, partitions=partitions, replicas=replicas)
        if replicas < plan.replicas and not plan.optional:
            log.warning(
                f"the cluster has fewer brokers than {plan.replicas_option}; raise the topic's replicas when it has "
                "more",
                topic=plan.name,
                replicas=replicas,
                wanted=plan.replicas,
            )

    async def _look_at_settings(self) -> None:
        """Reads the settings, and warns of harmful ones. A kproxy without the right to read them does without."""
        plan = self._plan
        resource = DescribeConfigsRequestDescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE,
            resource_name=self.name,
            configuration_keys=list({**plan.settings, **plan.wrong}),
        )
        try:
            response = await self._cluster.ask_any(
                DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, _DESCRIBE
            )
        except (OSError, RemoteProtocolError):
            return
        self.settings = {row.name: row.value for result in response.results for row in result.configs}
        for name, value in self.settings.items():
            if plan.harms(name, value) or plan.costs(name, value):
                harm = plan.wrong.get(name) or plan.costly[name]
                log.warning(harm, topic=self.name, setting=name, value=value, wanted=plan.settings.get(name))

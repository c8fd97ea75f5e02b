"""Topics that may hold data of transactions that kproxy's own log decides: no compacted ones, and none of kproxy's.

Compaction does not know kproxy's transactions: it deletes a key's committed value when a later record that was aborted
has the same key.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

import structlog
import trio

from kproxy.codec._generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestDescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseDescribeConfigsResult,
)
from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.own_topic import Refused, TopicDeleted, check
from kproxy.proxy.routing import is_own_topic
from kproxy.txn.txn_error import TxnError

log = structlog.get_logger("kproxy.topic_policies")

_DESCRIBE: Final = (0, 4)
_TOPIC_RESOURCE: Final = 2
_SETTING: Final = "cleanup.policy"
#: The time for which a response is believed.
_KEPT_SECONDS: Final = 60.0
#: Topics that are remembered.
_MOST_TOPICS: Final = 10_000


class _KnownPolicy(NamedTuple):
    compacted: bool
    until: float


class TopicPolicies:
    """Asks brokers for the cleanup.policy of topics, and remembers their responses for a minute."""

    def __init__(self, cluster: Cluster) -> None:
        """``cluster`` knows the brokers."""
        self._cluster = cluster
        self._known: dict[str, _KnownPolicy] = {}
        self._asking = trio.Lock()
        self._warned = False

    def topic_id(self, topic: str) -> bytes | None:
        """The id of a topic, as far as it is known."""
        return self._cluster.metadata.topic_id(topic)

    async def errors(self, places: Collection[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """The error of each partition that can't be written. TxnError (COORDINATOR_NOT_AVAILABLE) without a broker."""
        errors: dict[str, ErrorCode] = {}
        for topic in dict.fromkeys(topic for topic, _ in places):
            if is_own_topic(topic):
                errors[topic] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif await self.is_compacted(topic):
                errors[topic] = ErrorCode.POLICY_VIOLATION
        return {place: errors[place[0]] for place in places if place[0] in errors}

    def is_known_writable(self, place: TopicPartition) -> bool:
        known = self._fresh(place[0])
        return known is not None and not known.compacted and not is_own_topic(place[0])

    async def is_compacted(self, topic: str) -> bool:
        """Whether a topic's cleanup.policy has compact; False where brokers will not tell kproxy, or it is not there.

        TxnError (COORDINATOR_NOT_AVAILABLE) if no broker can be asked.
        """
        known = self._fresh(topic)
        if known is None:
            async with self._asking:
                known = self._fresh(topic)
                if known is None:
                    known = await self._learn(topic)
        return known.compacted

    def _fresh(self, topic: str) -> _KnownPolicy | None:
        known = self._known.get(topic)
        return known if known is not None and trio.current_time() < known.until else None

    async def _learn(self, topic: str) -> _KnownPolicy:
        try:
            compacted = await self._ask(topic)
        except TopicDeleted:
            return _KnownPolicy(False, 0.0)  # once it is there it may be another
        except Refused as refused:
            self._warn(topic, str(refused))
            compacted = False
        except (OSError, RemoteProtocolError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no settings of {topic}: {error}") from error
        if compacted:
            log.warning(
                "a transaction that kproxy decides may not write to a compacted topic",
                topic=topic,
                advice="let transactions.home of its transactional id be broker, broker-fenced or auto",
            )
        known = _KnownPolicy(compacted, trio.current_time() + _KEPT_SECONDS)
        self._known.pop(topic, None)
        if len(self._known) >= _MOST_TOPICS:
            del self._known[next(iter(self._known))]  # the oldest
        self._known[topic] = known
        return known

    async def _ask(self, topic: str) -> bool:
        """OSError, RemoteProtocolError: another attempt may go well; TopicDeleted; Refused."""
        broker = self._cluster.any_broker()
        if broker is not None and ApiKey.DESCRIBE_CONFIGS not in await self._cluster.versions(broker):
            raise Refused("DescribeConfigs", ErrorCode.UNSUPPORTED_VERSION)
        resource = DescribeConfigsRequestDescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[_SETTING]
        )
        response = await self._cluster.ask_any(
            DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, _DESCRIBE
        )
        for result in response.results:
            check("DescribeConfigs", topic, result.error_code)
            return _has_compact(result)
        raise RemoteProtocolError("DescribeConfigs answer without the topic")

    def _warn(self, topic: str, error: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "the broker does not report whether a topic is compacted; transactions in compacted topics lose data",
                topic=topic,
                error=error,
                grant="DescribeConfigs on the topics of transactions, to kproxy's principal",
            )


def _has_compact(result: DescribeConfigsResponseDescribeConfigsResult) -> bool:
    for row in result.configs:
        if row.name == _SETTING:
            return "compact" in (row.value or "").split(",")
    return False

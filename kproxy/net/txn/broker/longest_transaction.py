"""The longest time that the brokers let a transaction be open."""

from typing import Final

from kproxy.codec._generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestDescribeConfigsResource,
    DescribeConfigsResponse,
)
from kproxy.codec.messages import ErrorCode
from kproxy.codec.version_choice import NoCommonVersion
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.coordinators import TRANSACTION
from kproxy.txn.txn_error import TxnError

_NEWEST: Final = 4
_BROKER_RESOURCE: Final = 4
_SETTING: Final = "transaction.max.timeout.ms"


class LongestTransaction:
    """``transaction.max.timeout.ms`` of the brokers."""

    def __init__(self, cluster: Cluster, otherwise_ms: int) -> None:
        """``otherwise_ms``: the value where the brokers do not report theirs."""
        self._cluster = cluster
        self._otherwise_ms = otherwise_ms

    async def ms(self, transactional_id: str) -> int:
        """The limit by the coordinator of an id, in ms. TxnError (COORDINATOR_NOT_AVAILABLE) if it can't be asked."""
        try:
            broker, _ = await self._cluster.coordinators.broker(transactional_id, TRANSACTION)
            resource = DescribeConfigsRequestDescribeConfigsResource(
                resource_type=_BROKER_RESOURCE, resource_name=str(broker.node_id), configuration_keys=[_SETTING]
            )
            request = DescribeConfigsRequest(resources=[resource])
            answer = await self._cluster.call(broker.address, request, DescribeConfigsResponse, (0, _NEWEST))
        except NoCommonVersion:
            return self._otherwise_ms
        except (OSError, RemoteProtocolError) as error:
            self._cluster.coordinators.forget(transactional_id, TRANSACTION)
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no settings of a broker: {error}") from error
        return self._told(answer)

    def _told(self, answer: DescribeConfigsResponse) -> int:
        rows = (row for result in answer.results for row in result.configs)  # none where a broker refuses
        told = next((row.value for row in rows if row.name == _SETTING and row.value), None)
        return int(told) if told is not None else self._otherwise_ms

"""Offsets of consumer groups in transactions: whether the group has moved on."""

from typing import Final

from kproxy.codec._generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproxy.codec._generated.transaction_offsets import TransactionOffsets
from kproxy.codec.messages import ErrorCode
from kproxy.errors import RemoteProtocolError
from kproxy.net.cluster import Cluster
from kproxy.txn.ids import Producer

_HEARTBEAT: Final = (0, 4)
_NO_GENERATION: Final = -1
#: The members are asked to join again: until they do, the generation is the one that it was.
_STILL_THERE: Final = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})


class GroupOffsets:
    """Asks the groups' coordinators."""

    def __init__(self, cluster: Cluster) -> None:
        """``cluster`` knows who coordinates a group."""
        self._cluster = cluster

    async def check(self, offsets: TransactionOffsets) -> int:
        """Kafka's error code if the group is not at the offsets' generation; 0 if it is, or none was named (KIP-447).

        OSError, RemoteProtocolError if no coordinator can be asked.
        """
        if offsets.generation_id == _NO_GENERATION and not offsets.member_id:
            return 0
        broker = await self._cluster.coordinator(offsets.group_id)
        if broker is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        client = await self._cluster.client(broker.address)
        served = client.versions.get(HeartbeatRequest.API_KEY, (0, 0))
        request = HeartbeatRequest(
            offsets.group_id, offsets.generation_id, offsets.member_id, group_instance_id=offsets.group_instance_id
        )
        version = min(served[1], _HEARTBEAT[1])
        if version < 3:
            request.group_instance_id = None  # static membership is younger (KIP-345)
        response = await client.call(request, version)
        if not isinstance(response, HeartbeatResponse):
            raise RemoteProtocolError("no answer to Heartbeat")
        return 0 if response.error_code in _STILL_THERE else response.error_code

    def committed(self, transactional_id: str, producer: Producer) -> None:
        """The offsets of this transaction hold now."""

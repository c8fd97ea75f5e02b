"""The outside of transactions that the brokers decide (``kproxy.txn.procedures``), performed."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from kproxy.codec.messages import ApiKey, ErrorCode
from kproxy.config.transaction_options import TransactionOptions
from kproxy.errors import RemoteProtocolError
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.succession import Succession
from kproxy.net.txn.broker.broker_requests import BrokerRequests
from kproxy.net.txn.broker.longest_transaction import LongestTransaction
from kproxy.net.txn.broker_time import BrokerTime
from kproxy.net.txn.reports import report
from kproxy.net.txn.trio_tasks import TrioTasks, together
from kproxy.net.txn.trio_time import TrioTime
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.routing import is_own_topic
from kproxy.proxy.transaction_stats import TransactionStats
from kproxy.txn.procedures.broker_ends import BrokerEnds
from kproxy.txn.procedures.broker_members import BrokerMemberPorts, BrokerMembers
from kproxy.txn.procedures.broker_owners import BrokerOwners, BrokerTools
from kproxy.txn.procedures.deadlines import Deadlines
from kproxy.txn.procedures.kept_epoch import EpochLog
from kproxy.txn.procedures.member_ids import MemberIds
from kproxy.txn.procedures.outside import PacedLog
from kproxy.txn.procedures.votes import Votes
from kproxy.txn.txn_error import TxnError

#: Requests at a time: to end members, to ask about them before a decision, to fence ids that rest.
_ENDS: Final = 32
_VOTES: Final = 32
_FENCES: Final = 8


class BrokerSide:
    """Makes the procedures of one instance that ask the brokers' coordinators."""

    def __init__(self, cluster: Cluster, config: TransactionOptions, stats: TransactionStats) -> None:
        """``config``: how long brokers are waited for."""
        self._cluster = cluster
        self._config = config
        self._stats = stats
        self._time = TrioTime(cluster.network.wall)
        self._patience_s = config.delivery_timeout_ms / 1000

    def requests(self, transactional_id: str) -> BrokerRequests:
        """Requests about an id, over connections that are shared."""
        return BrokerRequests(self._cluster, transactional_id, self._patience_s)

    def owners(
        self, connections: Callable[[], WriterConnections], log: EpochLog, succession: Succession
    ) -> BrokerOwners:
        """The owners of ids. ``log`` keeps what a restart of kproxy needs."""

        def requests(transactional_id: str) -> BrokerRequests:
            return BrokerRequests(self._cluster, transactional_id, self._patience_s, connections())

        return BrokerOwners(
            BrokerTools(
                requests=requests,
                connections=connections,
                log=log,
                stats=self._stats,
                time=self._time,
                report=report,
                alone=succession.alone,
                is_own_topic=is_own_topic,
                patience_s=self._patience_s,
                unused_ms=self._config.transactional_id_timeout_ms,
            )
        )

    def members(self, slots: MemberIds) -> BrokerMembers:
        """The members that write in transactions of the broker's."""
        longest = LongestTransaction(self._cluster, self._config.transaction_max_timeout_ms)
        ports = BrokerMemberPorts(self.requests, longest.ms, partial(Backoff, self._config))
        return BrokerMembers(ports, slots, self._patience_s, self._time, TrioTasks(_FENCES))

    def ends(self, log: PacedLog, instance_id: str) -> BrokerEnds:
        """The ends of members' transactions."""
        return BrokerEnds(
            self.requests, log, self._stats, instance_id, self._patience_s, self._time, TrioTasks(_ENDS), report
        )

    def votes(self, now_ms: Callable[[str], Awaitable[float]]) -> Votes:
        """The brokers' word on prepared members. ``now_ms``: their time."""
        return Votes(self.requests, self.describe, now_ms, together(_VOTES))

    def deadlines(self, log: PacedLog, time: BrokerTime) -> Deadlines:
        """Warnings of members that are prepared."""
        return Deadlines(log, self._stats, lambda: time.likely_ms, report)

    async def describe(self) -> bool:
        """Whether brokers describe transactions (KIP-664), and so serve them. TxnError."""
        try:
            broker = self._cluster.any_broker()
            return broker is None or ApiKey.DESCRIBE_TRANSACTIONS in await self._cluster.versions(broker)
        except (OSError, RemoteProtocolError) as error:
            raise TxnError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error

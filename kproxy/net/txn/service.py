"""kproxy's own transactions, put together: the log that is followed, the coordinator, and who asks them."""

import os
from collections.abc import Collection, Mapping

import trio

from kproxy.config import Config
from kproxy.net.broker_log_leaders import Leaders
from kproxy.net.broker_log_questions import LATEST, list_offsets
from kproxy.net.cluster import Cluster
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.group_offsets import GroupOffsets
from kproxy.net.txn.log import TransactionLog, ViewSink, make_views
from kproxy.net.txn.log_appender import LogAppender
from kproxy.net.txn.log_follower import LogFollower
from kproxy.net.txn.log_topic import TOPIC, transaction_topic
from kproxy.net.txn.tools import OwnerTools
from kproxy.net.txn.topic_policies import TopicPolicies
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.stats import Stats
from kproxy.txn.view import Place

_NONCE_BYTES = 16


class Transactions:
    """What a server needs of transactions; its tasks run in the nursery that it is given."""

    def __init__(self, cluster: Cluster, config: Config, stats: Stats, nursery: trio.Nursery) -> None:
        """Nothing is asked of the brokers before ``run``."""
        self.views = make_views()
        self.follower = LogFollower(cluster, config, transaction_topic(cluster, config), ViewSink(self.views))
        self._appender = LogAppender(cluster, config, TOPIC)
        self._leaders = Leaders(cluster, config)
        self._stats = stats
        self.log = TransactionLog(self.views, self.follower, self._appender)
        tools = OwnerTools(
            log=self.log,
            cluster=cluster,
            stats=stats.transactions,
            groups=GroupOffsets(cluster),
            ends=self._ends,
            connections=lambda: WriterConnections(cluster, config, stats, nursery),
            nonce=lambda: os.urandom(_NONCE_BYTES),
            instance_id=config.instance_id,
        )
        self.coordinator = Coordinator(tools, config, TopicPolicies(cluster), nursery)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follows the log and looks after what takes too long, for ever; ``started`` once all of the log is read."""
        try:
            async with trio.open_nursery() as nursery:
                began = trio.current_time()
                await nursery.start(self.follower.run)
                await self.follower.loaded()
                self._stats.transactions.log_load_seconds = trio.current_time() - began
                task_status.started()
                await self.coordinator.run()
        finally:
            self.coordinator.close()
            self._appender.close()
            self._leaders.close()

    async def _ends(self, places: Collection[Place]) -> Mapping[Place, int]:
        told = await self._leaders.ask(places, list_offsets(LATEST))
        return {place: told[place].get(place, "ListOffsets") for place in places}

"""kproxy's own transactions, put together: the log that is followed, the coordinator, and its callers."""

import os
from collections.abc import Collection, Mapping
from functools import partial

import structlog
import trio

from kproxy.codec._generated.transaction_ended import TransactionEnded
from kproxy.codec.messages import ErrorCode
from kproxy.codec.topic_partition import TopicPartition
from kproxy.config.transaction_options import TransactionOptions
from kproxy.errors import RemoteProtocolError
from kproxy.net.broker_log_questions import LATEST, list_offsets
from kproxy.net.brokers.backoff import Backoff
from kproxy.net.brokers.cluster import Cluster
from kproxy.net.brokers.leaders import Leaders, LogError
from kproxy.net.end_of_turn import EndOfTurn
from kproxy.net.lane_log import LaneLog
from kproxy.net.own_topic import Refused
from kproxy.net.succession import Succession
from kproxy.net.txn.application_commits import ApplicationCommits
from kproxy.net.txn.beginning_rounds import BeginningRounds
from kproxy.net.txn.broker.broker_side import BrokerSide
from kproxy.net.txn.broker.stable_groups import StableGroups
from kproxy.net.txn.broker_time import BrokerTime
from kproxy.net.txn.control_ports import ControlPorts
from kproxy.net.txn.control_service import ControlService
from kproxy.net.txn.coordinator import Coordinator
from kproxy.net.txn.copy_sweeps import CopySweeps
from kproxy.net.txn.former_data import FormerData
from kproxy.net.txn.group_offset_requests import GroupAsks
from kproxy.net.txn.group_offset_writes import GroupOffsets
from kproxy.net.txn.jobs import Jobs
from kproxy.net.txn.log_appender import LogAppender
from kproxy.net.txn.log_follower import LogFollower
from kproxy.net.txn.log_topic import TOPIC, transaction_topic
from kproxy.net.txn.managed_tools import managed_tools
from kproxy.net.txn.offset_mirror import OffsetMirror
from kproxy.net.txn.owner_rounds import OwnerRounds
from kproxy.net.txn.produce_answers import ProduceAnswers
from kproxy.net.txn.reports import report, report_unknown
from kproxy.net.txn.snapshots import Snapshots
from kproxy.net.txn.stable_offsets import StableOffsets
from kproxy.net.txn.topic_policies import TopicPolicies
from kproxy.net.txn.transaction_log import TransactionLog, ViewSink, make_views
from kproxy.net.txn.trio_time import TrioTime
from kproxy.net.txn.waits import CommittedReading
from kproxy.net.txn.writer_connections import WriterConnections
from kproxy.proxy.applications import CommitRules
from kproxy.proxy.memberships import Memberships
from kproxy.proxy.stats import Stats
from kproxy.proxy.traces import NoTraces, Traces
from kproxy.single_flight import SingleFlight
from kproxy.txn.claims import NOBODY
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.applications_by_rule import ApplicationsByRule
from kproxy.txn.procedures.broker_control import BrokerControl
from kproxy.txn.procedures.former_epochs import FormerEpochs
from kproxy.txn.procedures.hand_control import not_here, not_in_log
from kproxy.txn.procedures.implicit_transactions import ImplicitTransactions, Parties
from kproxy.txn.procedures.log_control import LogControl
from kproxy.txn.procedures.log_owners import LogOwners, Terms
from kproxy.txn.procedures.managed_transactions import ManagedTransactions
from kproxy.txn.procedures.member_control import MemberControl
from kproxy.txn.procedures.member_ids import MemberIds
from kproxy.txn.procedures.members import MakersByRule, Members, PlainMembers
from kproxy.txn.procedures.outside import OwnerTools
from kproxy.txn.procedures.participants import Participants
from kproxy.txn.procedures.rejects import Rejects
from kproxy.txn.procedures.single_requests import SingleRequests
from kproxy.txn.txn_error import TxnError

log = structlog.get_logger("kproxy.transaction_log")

_NONCE_BYTES = 16


class Transactions:
    """Transactions, as a server needs them; their tasks run in the nursery that it is given.

    The log's topic is made when the first transaction needs it. Until there is one nothing can have been committed, and
    data of a transaction that nothing is known of are hidden.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: TransactionOptions,
        stats: Stats,
        nursery: trio.Nursery,
        succession: Succession | None = None,
        traces: Traces | None = None,
    ) -> None:
        """No request goes to the brokers before ``run``. ``succession``: the process that this one replaces, if any.

        ``traces`` receive the begin and end of transactions.
        """
        self._succession = succession or Succession()
        self.views = make_views()
        self._cluster = cluster
        self._config = config
        self._stats = stats
        self._topic = transaction_topic(cluster, config)
        sink = ViewSink(self.views)
        self.follower = LogFollower(cluster, config, self._topic, sink)
        self._appender = LogAppender(cluster, config, TOPIC)
        self._time = BrokerTime(cluster.network)
        self._appender.on_append_time = self._time.observe
        self._leaders = Leaders(cluster, config)
        self.log = TransactionLog(self.views, self.follower, self._appender)
        self.snapshots = Snapshots(self.views, self.follower, self._appender, _nonce)
        self._copy_sweeps = CopySweeps(self.views, self._leaders.ask)
        self._beginnings = BeginningRounds(self.views, self.follower, self.snapshots, sink.begin_without)
        reads = SingleFlight(self._read_to_end)
        self._mirror = OffsetMirror(cluster, self.log, config.instance_id, reads)
        sink.listeners.append(self._mirror.view_changed)
        #: The process's.
        self.turn = EndOfTurn(nursery)
        connections = partial(WriterConnections, cluster, config, stats.produce, nursery, self.turn)
        trio_time = TrioTime(cluster.network.wall)
        tools = OwnerTools(
            log=self.log,
            stats=stats.transactions,
            groups=GroupOffsets(cluster, self._mirror),
            ends=self._ends,
            topics=TopicPolicies(cluster),
            former=FormerEpochs(FormerData(self._leaders, config, stats.retries), trio_time),
            connections=connections,
            ask_producer_id=cluster.new_producer_id,
            nonce=_nonce,
            instance_id=config.instance_id,
            time=trio_time,
            traces=traces or NoTraces(),
            report=report,
        )
        self._jobs = Jobs(nursery)
        self._rounds = OwnerRounds(self.log, cluster.network, stats.transactions, nursery)
        terms = Terms(config.transaction_max_timeout_ms, config.transactional_id_timeout_ms)
        log_owners = LogOwners(tools, terms, self._succession.alone, self._rounds.start)
        #: Of this process, for its server too: beside producer ids it keeps the epochs of the broker's transactions.
        self.lane_log = LaneLog(cluster, config, replaces=self._succession.replaces)
        at_brokers = BrokerSide(cluster, config, stats.transactions)
        brokers = at_brokers.owners(connections, self.lane_log, self._succession)
        self.coordinator = Coordinator(log_owners, brokers, config, self._jobs, cluster, stats.transactions)
        self.produce_answers = ProduceAnswers(self.coordinator, self._jobs, cluster)
        self.application_commits = ApplicationCommits(self._jobs, cluster)
        #: The members of each group, for offsets of clients that do not say.
        self.memberships = Memberships()
        self._stable = StableOffsets(cluster, config, stats.retries, self.views, self.views.bound, self._read_to_end)
        self.rejects = Rejects(
            self.log,
            self._read_to_end,
            stats.transactions,
            trio_time,
            report_unknown,
            grace_s=config.transaction_max_timeout_ms / 1000,
            by_itself=config.unknown_producer_ids == "reject",
        )
        managed, longest = managed_tools(self.coordinator, trio_time), config.transaction_max_timeout_ms
        begun = ManagedTransactions(managed)
        sink.listeners.append(begun.view_changed)
        #: For clients that know nothing of transactions.
        self.implicit_transactions = ImplicitTransactions(
            begun,
            ApplicationsByRule(managed, CommitRules(config.on_offset_commit), config.on_offset_commit_timeout_ms),
            SingleRequests(managed, config.per_request, longest),
        )
        self._told_ends = at_brokers.ends(self.log, config.instance_id)
        self._deadlines = at_brokers.deadlines(self.log, self._time)
        slots = MemberIds(config.instance_id, tools.new_producer_id, trio_time)
        sink.listeners.append(slots.view_changed)
        self._broker_members = at_brokers.members(slots)
        makers = MakersByRule(
            PlainMembers(), self._broker_members, self.coordinator.is_at_broker_by_rule, at_brokers.describe
        )
        members = Members(tools, makers)
        told = Participants(at_brokers.votes(self.broker_now_ms), self._told_ends)
        unknown = self.coordinator.by_home(not_in_log, not_here)
        ports = ControlPorts(
            self.coordinator, self.log, self._read_to_end, begun, told, unknown, trio_time, cluster.silence
        )
        at_log = LogControl(ports, log_owners, begun)
        at_broker = BrokerControl(managed, begun, at_log, self.coordinator.by_home(log=False, broker=True))
        #: Transactions by hand.
        self.control = ControlService(
            self.coordinator.by_home(at_log, at_broker),
            (at_broker, at_log),
            MemberControl(ports, at_log, log_owners, begun, members),
            self.rejects,
        )
        #: For connections that show committed data alone.
        stable = StableGroups(cluster).wait if config.on_offset_commit and self.coordinator.any_at_broker else None
        groups = GroupAsks(cluster, self.log, self, self._mirror, reads, log_owners.end_left, stable)
        self.reading = CommittedReading(self.views, self, self._stable.stable, self._stable.told, groups)

    def leave(self) -> None:
        """Gives no client a producer id from now on; open transactions continue to their end."""
        self.coordinator.leave()

    def closed(self, connection: int, *, received_all: bool) -> None:
        """Records that a client's connection has ended; ``received_all``: it surely has every response."""
        self.coordinator.log.closed(connection)
        self.implicit_transactions.closed(connection, received_all=received_all)
        self.memberships.closed(connection, self._cluster.network.wall())

    def parties(self) -> Parties:
        """The clients that take part in transactions that are open here."""
        connections, client_ids = self.implicit_transactions.parties()
        return Parties(connections.union(self.coordinator.parties()), client_ids)

    def takes_part(self, connection: int) -> bool:
        """Whether a connection takes part in a transaction that is open here."""
        return connection in self.coordinator.parties()

    @property
    def open(self) -> int:
        """Transactions that are open here."""
        return self.coordinator.open

    @property
    def jobs(self) -> int:
        """Requests of transactions, decisions among them, that have begun and are not through."""
        return self._jobs.count

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follows the log and looks after what takes too long, for ever.

        ``started`` once all of the log is read, or there is none.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.implicit_transactions.begun.run)
                nursery.start_soon(self.coordinator.admission.run)
                nursery.start_soon(self.coordinator.brokers.run)
                nursery.start_soon(self.rejects.run)
                if await self._is_there():
                    await self._load(nursery)
                    task_status.started()
                else:
                    task_status.started()
                    await self._until_wanted()
                    await self._load(nursery)
                nursery.start_soon(self.snapshots.run)
                nursery.start_soon(self._beginnings.run)
                nursery.start_soon(self._copy_sweeps.run)
                nursery.start_soon(self._told_ends.run)
                nursery.start_soon(self._broker_members.run)
                nursery.start_soon(self._deadlines.run)
                nursery.start_soon(self._mirror.run)
                await self._succession.alone()
                await self._rounds.run(self.coordinator.log)
        finally:
            self.coordinator.log.close()
            self._appender.close()
            self._leaders.close()
            self._stable.close()

    async def _load(self, nursery: trio.Nursery) -> None:
        began = trio.current_time()
        await nursery.start(self.follower.run)
        await self.follower.loaded()
        self._stats.transactions.log_load_seconds = trio.current_time() - began
        self.log.opened.set()
        if lost := self.log.views.without_beginning(range(self.follower.partitions)):
            log.error(
                "the beginning of the transaction log is lost: nothing is decided there, and readers wait at it, "
                "until another instance writes a snapshot of it, or kproxy continues without",
                topic=TOPIC,
                partitions=len(lost),
                partition=lost[0],
            )

    async def _until_wanted(self) -> None:
        """Waits until a transaction is to be begun here, or was elsewhere."""
        while not self.log.wanted.is_set() and not await self._is_there():
            with trio.move_on_after(self._config.metadata_max_age_ms / 1000):
                await self.log.wanted.wait()

    @property
    def version(self) -> int:
        return self.follower.version

    async def changed(self, seen: int) -> None:
        """Waits for changes (``waits.Changes``). A caller that waits has met data of transactions: so a log exists."""
        if not self.log.opened.is_set() and await self._is_there():
            self.log.wanted.set()
        await self.follower.changed(seen)

    async def _read_to_end(self) -> None:
        """Reads all of the log that there is. OSError, RemoteProtocolError if that can't be done."""
        with trio.move_on_after(self._config.delivery_timeout_ms / 1000) as scope:
            if not self.log.opened.is_set() and not await self._is_there():
                return
            self.log.wanted.set()
            await self.log.read_all_to_end()
        if scope.cancelled_caught:
            raise OSError("the transaction log can't be read to its end")

    async def broker_now_ms(self, transactional_id: str) -> float:
        """The brokers' time; a record that says nothing is appended for it if need be. TxnError."""
        nothing = Entry(transactional_id, TransactionEnded(*NOBODY))
        return await self._time.now_ms(partial(self.log.append_unfenced, nothing))

    async def _is_there(self) -> bool:
        backoff = Backoff(self._config)
        while True:
            try:
                found = await self._topic.exists()
                self.log.absent_at = None if found else trio.current_time()
                return found
            except (OSError, RemoteProtocolError):
                self._cluster.count_error("transaction_state_log")
            except Refused as refused:
                self._topic.warn_of_refusal(refused)
                return False
            await backoff.pause()

    async def _ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        try:
            return await self._leaders.values(places, list_offsets(LATEST), "ListOffsets")
        except LogError as error:
            raise TxnError(ErrorCode(error.error_code), str(error)) from error


def _nonce() -> bytes:
    return os.urandom(_NONCE_BYTES)

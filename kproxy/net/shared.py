"""The objects that all client connections of a process share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kproxy.net.brokers.cluster import Cluster
from kproxy.net.budget import Budget, Unfinished
from kproxy.net.kept_repairs import KeptRepairs
from kproxy.net.lane_leases import Lanes
from kproxy.net.retry_ledger_keeper import RetryLedgerKeeper
from kproxy.net.txn.waits import CommittedReading
from kproxy.proxy.stats import Stats

if TYPE_CHECKING:
    from kproxy.net.client_login.login_worker import LoginWorker
    from kproxy.net.txn.service import Transactions

#: One read takes at most so much; one buffer serves all connections, since its content is used before anyone waits.
READ_BYTES = 262_144


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """The objects that all client connections share."""

    cluster: Cluster
    stats: Stats
    lanes: Lanes
    keeper: RetryLedgerKeeper
    #: Memory of all requests and responses, and of unfinished requests.
    budget: Budget
    unfinished: Unfinished
    #: Added to trio's clock it gives the time since the epoch, in seconds.
    wall: float
    #: For what is read: ``READ_BYTES``.
    buffer: memoryview
    #: None: kproxy decides no transactions.
    transactions: "Transactions | None" = None
    #: What is known of kproxy's transaction log; None: it is not read.
    reading: CommittedReading | None = None
    #: None: clients do not log in at kproxy.
    logins: "LoginWorker | None" = None
    #: Of errors about the numbers of kept producers; None: all are relayed.
    repairs: KeptRepairs | None = None

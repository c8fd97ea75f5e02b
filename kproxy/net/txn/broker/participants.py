"""What a decision about members whose data the brokers keep needs of them: before it is made, and behind it."""

from typing import NamedTuple

from kproxy.net.txn.broker.broker_ends import BrokerEnds
from kproxy.net.txn.broker.votes import Votes


class Participants(NamedTuple):
    """Both."""

    votes: Votes
    ends: BrokerEnds

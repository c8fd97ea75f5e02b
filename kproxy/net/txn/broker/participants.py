"""The needs of a decision with members whose data the brokers keep: before the decision is made, and after it."""

from typing import NamedTuple

from kproxy.net.txn.broker.broker_ends import BrokerEnds
from kproxy.net.txn.broker.votes import Votes


class Participants(NamedTuple):
    """Both."""

    votes: Votes
    ends: BrokerEnds

"""The needs of a decision with members whose data the brokers keep: before the decision is made, and after it."""

from typing import NamedTuple

from kproxy.txn.procedures.broker_ends import BrokerEnds
from kproxy.txn.procedures.votes import Votes


class Participants(NamedTuple):
    """Both."""

    votes: Votes
    ends: BrokerEnds

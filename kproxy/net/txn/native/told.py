"""What a decision about members whose data the brokers keep needs of them: before it is made, and behind it."""

from typing import NamedTuple

from kproxy.net.txn.native.ends import NativeEnds
from kproxy.net.txn.native.votes import Votes


class Told(NamedTuple):
    """Both."""

    votes: Votes
    ends: NativeEnds

"""An offline checker: reads what clients did and saw, and names each way in which it was not exactly once, in order."""

from verification.history.anomaly import Anomaly, AnomalyKind
from verification.history.check import check
from verification.history.files import MalformedHistory, decode, encode, read_history, write_history
from verification.history.operations import Commit, Kind, Operation, Outcome, Poll, Producer, Send, Source

__all__ = [
    "Anomaly",
    "AnomalyKind",
    "Commit",
    "Kind",
    "MalformedHistory",
    "Operation",
    "Outcome",
    "Poll",
    "Producer",
    "Send",
    "Source",
    "check",
    "decode",
    "encode",
    "read_history",
    "write_history",
]

"""The exceptions of the cores: the class says which side made the error. Nothing else is raised on purpose.

Expected outcomes are values (``ErrorCode``), not exceptions. Any exception that is none of these is a bug.
"""


class KproxyError(Exception):
    """Base of everything that kproxy raises on purpose."""


class RemoteProtocolError(KproxyError):
    """The peer sent bytes that the Kafka protocol does not allow; the only exception a decoder raises."""

    #: How it is counted when a client's connection ends for it.
    refusal = "malformed"


class LocalProtocolError(KproxyError):
    """We were asked to encode something that the chosen protocol version cannot say."""


class FencedByAnother(LocalProtocolError):
    """Another kproxy has fenced our producer: only that one may decide what is in flight."""

    def __init__(self, message: str, taken_at: float = 0.0) -> None:
        """``taken_at``: when the client's request came with which the fence was seen, in seconds since the epoch."""
        super().__init__(message)
        self.taken_at = taken_at

"""The exceptions of the cores: who erred decides the class, and nothing else is ever raised on purpose.

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
    """Another kproxy has fenced our producer: what is in flight may only be decided by whoever did."""

"""The faults that a relay injects, and counts of what it has done."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from kproxy.codec.messages import ApiKey


class Ending(Enum):
    """How a connection ends, on both of its sides."""

    FIN = "fin"
    """In good order: nothing more is sent, what still comes is read (so acknowledged by TCP) and thrown away."""
    RST = "rst"
    """Reset at once."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Which frames of one API vanish: the `every`-th of the whole relay (0: none) and a random `share` of all."""

    every: int = 0
    share: float = 0.0
    api_key: int = ApiKey.PRODUCE
    ending: Ending | None = Ending.FIN
    """What happens to the connection then; None: it lives on with a hole in it."""


@dataclass
class Faults:
    """What a relay does to its connections. May be changed at any time, for connections that are open too."""

    drop_requests: Drop | None = None
    drop_answers: Drop | None = None
    request_delays: dict[int, float] = field(default_factory=dict)
    """Seconds by API key before a request is passed on; requests after it wait too."""
    answer_delays: dict[int, float] = field(default_factory=dict)
    cut_requests_at: int | None = None
    """End a connection when so many bytes of its requests, counted from its beginning, have been passed on."""
    cut_answers_at: int | None = None
    cut_ending: Ending = Ending.FIN
    swallow_requests: bool = False
    """Half-open: what the client sends, its end included, vanishes without a sign."""
    swallow_answers: bool = False
    bytes_per_second: float | None = None
    """Speed of each direction of each connection."""
    accepting: bool = True
    """Whether new connections are served; else they are reset."""


@dataclass
class Counts:
    """What a relay has seen and done so far; the counters are by API key (-1: not known)."""

    connections: int = 0
    requests: Counter[int] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)
    dropped_requests: Counter[int] = field(default_factory=Counter)
    dropped_answers: Counter[int] = field(default_factory=Counter)
    swallowed_bytes: int = 0
    cuts: int = 0
    """Connections that the relay ended of itself, for whatever reason."""

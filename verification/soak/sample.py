"""What kproxy took at one moment of a run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """Counts and bytes are of that moment, clients and processor time since the start."""

    #: Since the first client.
    seconds: float
    #: That have left.
    clients: int
    resident: int
    files: int
    tasks: int
    #: Python's small objects, about.
    blocks: int
    #: Of the C library: bytes in use, and bytes that it keeps for the next use.
    heap_used: int
    heap_free: int
    cpu_seconds: float
    #: Of the metrics page.
    page_bytes: int

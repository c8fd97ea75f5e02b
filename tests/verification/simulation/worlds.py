"""Plans made by hand, for tests."""

from typing import Any

from verification.simulation.plan import ClientPlan, FaultPlan, Plan, Send, plain_client


def send(*values: bytes, partition: int = 0, gap: float = 0.1) -> Send:
    """One batch."""
    return Send(gap, ((partition, values),))


def client(*sends: Send, number: int = 0, **more: Any) -> ClientPlan:
    """A producer of v2 batches, one request at a time."""
    return plain_client(number, sends, **more)


def plan(*clients: ClientPlan, faults: tuple[FaultPlan, ...] = (), seed: int = 1) -> Plan:
    """A plan of one kproxy."""
    return Plan(seed, clients, faults)


def fault(kind: str, time: float, where: float = 0.0, much: float = 0.5) -> FaultPlan:
    """A fault."""
    return FaultPlan(time, kind, where, much)

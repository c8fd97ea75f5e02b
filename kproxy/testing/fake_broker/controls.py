"""Faults to inject into the fake broker: what a control function may ask for, and the registration of one.

A control function sees each call of its API key before the handler does and returns one of the classes below, or None
for "handle it as usual". It may be async, to hold a request until the test lets it go.
"""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import trio

from kproxy.codec.messages import ApiKey, Message
from kproxy.testing.fake_broker.fake_api import Api, Call, CloseConnection


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer this instead of handling the request; nothing is applied."""

    message: Message


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection; nothing is applied."""


@dataclass(frozen=True, slots=True)
class CloseAfter:
    """Apply the request, then close the connection instead of answering: the lost acknowledgement."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Apply the request if ``apply``, and never answer; the connection stays open."""

    apply: bool = True


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait ``before`` seconds, handle the request, wait ``after`` seconds, answer."""

    before: float = 0.0
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Edit:
    """Apply the request, let ``change`` alter the response in place, send it."""

    change: Callable[[Message], None]


Fault: TypeAlias = Answer | Close | CloseAfter | Drop | Delay | Edit
ControlFunction: TypeAlias = Callable[[Call], Fault | Awaitable[Fault | None] | None]


@dataclass(slots=True)
class Control:
    """A registered control function; ``hits`` counts the faults it has asked for."""

    function: ControlFunction
    times: int | None = None
    hits: int = 0


@dataclass(slots=True)
class Controls:
    """The control functions of a cluster, by API key, oldest first; the first fault wins."""

    _by_key: dict[ApiKey, list[Control]] = field(default_factory=dict)

    def add(self, key: ApiKey, function: ControlFunction, times: int | None) -> Control:
        """Register ``function`` until it has asked for ``times`` faults (None: for ever)."""
        control = Control(function, times)
        self._by_key.setdefault(key, []).append(control)
        return control

    def remove(self, control: Control) -> None:
        """Forget a control function; harmless when it was removed already."""
        for controls in self._by_key.values():
            if control in controls:
                controls.remove(control)

    async def fault_for(self, key: ApiKey, call: Call) -> Fault | None:
        """Ask the control functions of ``key`` for a fault."""
        for control in tuple(self._by_key.get(key, ())):
            outcome = control.function(call)
            fault = await outcome if inspect.isawaitable(outcome) else outcome
            if fault is not None:
                control.hits += 1
                if control.hits == control.times:
                    self.remove(control)
                return fault
        return None


async def handle_with(fault: Fault | None, api: Api, call: Call) -> Message | None:
    """Handle one call under a fault.

    :raises CloseConnection: the fault or the handler wants the connection closed.
    """
    match fault:
        case Answer(message):
            return message
        case Close():
            raise CloseConnection
        case Drop(apply):
            if apply:
                await api.handle(call)
            return None
        case Delay(before, after):
            await trio.sleep(before)
            answer = await api.handle(call)
            await trio.sleep(after)
            return answer
    answer = await api.handle(call)
    if isinstance(fault, CloseAfter):
        raise CloseConnection
    if isinstance(fault, Edit) and answer is not None:
        fault.change(answer)
    return answer

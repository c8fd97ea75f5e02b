"""A client's waits: for a request to be sent, and for its response."""

from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kproxy.txn.requests import TxnRequest
from verification.explorer.engine import Move, Step, Task
from verification.explorer.instance import Instance

if TYPE_CHECKING:
    from verification.explorer.client import Client

#: A late copy of this request is a new producer.
FIRST: Final = "InitProducerId"
Make: TypeAlias = Callable[[Instance, TxnRequest], Coroutine[Step, Any, Any]]
"""Begins the work of an instance for a request, with the identity and the connection that the client sends it with."""


class Sending(Step):
    """Waits until a request is sent to an instance."""

    def __init__(self, client: "Client", what: str, make: Make) -> None:
        """``make`` begins what the instance does."""
        super().__init__("send", what)
        self._client, self._what, self._make = client, what, make

    def moves(self) -> Iterator[Move]:
        """Yield the instance that it used last, and the others."""
        client = self._client
        for number, instance in enumerate(client.world.instances):
            is_same = number == client.at
            if is_same or client.world.budget["moves"]:
                text = f"{client.name} asks {instance.name}: {self._what}"
                yield Move(text, partial(self._send, number), is_fault=not is_same)
        if client.world.budget["late"] and self._what != FIRST:
            name = client.world.instances[client.at].name
            text = f"{client.name} asks {name}: {self._what}, and its connection ends before that arrives"
            yield Move(text, self._send_late, is_fault=True)

    def _send_late(self) -> None:
        """The client asks again over a new connection; the request may arrive at any time after that."""
        client, world, make, what = self._client, self._client.world, self._make, self._what
        world.budget.take("late")
        instance, request = world.instances[client.at], client.request()

        def arrive() -> None:
            if not instance.is_killed:
                world.engine.start(f"{instance.name}/late {what}", instance, make(instance, request))

        world.send(f"the late {what} arrives at {instance.name}", arrive, "late", what, request, instance.life)
        client.connection += 1
        assert self.task is not None
        self.task.resume(error=OSError("the connection ended"))

    def _send(self, number: int) -> None:
        client, world = self._client, self._client.world
        if number != client.at:
            world.budget.take("moves")
            client.leave()
            client.at = number
        instance = world.instances[number]
        waiting = Waiting(client, instance, self._what)
        assert self.task is not None
        task = self.task
        client.waiting.add(waiting)
        task.resume(waiting)
        waiting.begin(self._make(instance, client.request()))


class Waiting(Step):
    """Waits for an instance's response."""

    def __init__(self, client: "Client", instance: Instance, what: str) -> None:
        """Wait for the response to a request that was sent."""
        super().__init__("response", what)
        self._client, self.instance, self._what = client, instance, what
        self._done: Task | None = None

    def begin(self, coroutine: Coroutine[Step, Any, Any]) -> None:
        """The instance takes the request."""
        name = f"{self.instance.name}/{self._what}"
        self._client.world.engine.start(name, self.instance, coroutine, self._answer)

    @property
    def is_awaited(self) -> bool:
        """Whether its client still waits for it."""
        return self.task is not None and self.task.waits is self

    def _answer(self, task: Task) -> None:
        self._done = task
        self.facts = (*self.facts, "answered", task.result, task.error)
        if self.is_awaited and not self._client.world.budget["unheard"]:
            self._hear()

    def moves(self) -> Iterator[Move]:
        """The response is read, or the connection ends before."""
        if self._done is not None:
            yield Move(f"{self._client.name} reads the response: {self._what}", self._hear)
        if self._client.world.budget["unheard"] and self._client.may_lose(self._what):
            yield Move(f"{self._client.name} loses its connection: {self._what}", self._lose, is_fault=True)

    def _hear(self) -> None:
        assert self.task is not None
        assert self._done is not None
        self._client.waiting.discard(self)
        self.task.resume(self._done.result, self._done.error)

    def _lose(self) -> None:
        self._client.world.budget.take("unheard")
        self.break_off()

    def break_off(self) -> None:
        """The connection has ended."""
        assert self.task is not None
        self._client.waiting.discard(self)
        self._client.leave()
        self._client.has_rival |= self._what == FIRST
        self.task.resume(error=OSError("the connection ended"))

"""An instance's waits for the log: to read it to its end, and for the response to a record."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kproxy.txn.ids import Producer
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures.outside import NotAppended
from verification.explorer.engine import Move, Step

if TYPE_CHECKING:
    from verification.explorer.instance import Instance


class Reading(Step):
    """Waits until the log is read to its end."""

    def __init__(self, instance: "Instance") -> None:
        """Read for an instance."""
        super().__init__("read")
        self._instance = instance

    def moves(self) -> Iterator[Move]:
        """Yield that it is read, or that the log does not answer."""
        yield Move(f"{self._name} reads the log", self._read)
        if self._instance.world.budget["silent"]:
            yield Move(f"{self._name} can't read the log", self._fail, is_fault=True)

    @property
    def _name(self) -> str:
        assert self.task is not None
        return self.task.name

    def _read(self) -> None:
        assert self.task is not None
        self._instance.read()
        self.task.resume()

    def _fail(self) -> None:
        assert self.task is not None
        self._instance.world.budget.take("silent")
        self.task.resume(error=OSError("no answer"))


class Appending(Step):
    """Waits for the log's response to a record."""

    def __init__(self, instance: "Instance", entry: Entry, producer: Producer, sequence: int) -> None:
        """Sent by an instance."""
        super().__init__("append", entry, producer, sequence)
        self._instance, self.entry, self._producer, self._sequence = instance, entry, producer, sequence

    @property
    def _what(self) -> str:
        assert self.task is not None
        return f"{self.task.name}: {type(self.entry.body).__name__.removeprefix('Transaction').upper()}"

    def moves(self) -> Iterator[Move]:
        """Yield that it arrives, is lost or late, or that the response is lost."""
        yield Move(f"{self._what} arrives", lambda: self._arrive(is_heard=True))
        if self._instance.world.budget["lost"]:
            yield Move(f"{self._what} arrives, and nobody hears of it", self._unheard, is_fault=True)
            yield Move(f"{self._what} is lost", lambda: self._lost(is_late=False), is_fault=True)
            yield Move(f"{self._what} will be late", lambda: self._lost(is_late=True), is_fault=True)

    def _append(self) -> int | None:
        return self._instance.world.append(self.entry, self._producer, self._sequence)

    def _arrive(self, *, is_heard: bool) -> None:
        assert self.task is not None
        offset = self._append()
        if offset is None or not is_heard:
            self.task.resume(error=NotAppended("refused" if offset is None else "no answer"))
        else:
            self.task.resume(offset)

    def _unheard(self) -> None:
        self._instance.world.budget.take("lost")
        self._arrive(is_heard=False)

    def _lost(self, *, is_late: bool) -> None:
        assert self.task is not None
        self._instance.world.budget.take("lost")
        if is_late:
            self.given_up()
        self.task.resume(error=NotAppended("no answer"))

    def given_up(self) -> None:
        """Let it arrive later, or never."""
        world, facts = self._instance.world, (self.entry, self._producer, self._sequence)
        world.send(f"the late {self._what} arrives", lambda: _ignore(world.append(*facts)), "append", *facts)


def _ignore(_: object) -> None:
    pass

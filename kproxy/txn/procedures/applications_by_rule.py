"""The applications of ``on.offset.commit``, by the rules of the configuration."""

from typing import Final, Protocol

from kproxy.txn.procedures.application_transactions import ApplicationTransactions
from kproxy.txn.procedures.managed_outside import ManagedTools

#: Of more, those that do nothing are forgotten.
_MOST_APPLICATIONS: Final = 1_000


class ApplicationNames(Protocol):
    """The names of applications by their clients."""

    def __bool__(self) -> bool:
        """Whether there may be any application."""
        ...

    def of_producer(self, client_id: str) -> str | None:
        """Name of the application to which a producer belongs."""
        ...

    def of_consumer(self, client_id: str, group_id: str) -> str | None:
        """Name of the application to which a consumer belongs."""
        ...


class ApplicationsByRule:
    """The applications of ``on.offset.commit``, made when they are first met."""

    def __init__(self, tools: ManagedTools, names: ApplicationNames, timeout_ms: int) -> None:
        """``timeout_ms``: of each of their transactions."""
        self._tools = tools
        self._names = names
        self._timeout_ms = timeout_ms
        self._applications: dict[str, ApplicationTransactions] = {}

    @property
    def some(self) -> bool:
        """Whether there may be any."""
        return bool(self._names)

    def of_producer(self, client_id: str) -> ApplicationTransactions | None:
        """The application to which a producer belongs."""
        return self._of(self._names.of_producer(client_id), client_id)

    def of_consumer(self, client_id: str, group_id: str) -> ApplicationTransactions | None:
        return self._of(self._names.of_consumer(client_id, group_id), client_id)

    def _of(self, name: str | None, client_id: str) -> ApplicationTransactions | None:
        if name is None:
            return None
        found = self._applications.get(name)
        if found is None:
            if len(self._applications) >= _MOST_APPLICATIONS:
                self._applications = {name: one for name, one in self._applications.items() if not one.is_idle}
            transactional_id = f"on-offset-commit-{self._tools.instance_id}-{name}"
            found = ApplicationTransactions(self._tools, transactional_id, client_id, self._timeout_ms)
            self._applications[name] = found
        return found

    def parties(self) -> set[int]:
        """The connections of the open transactions of all applications."""
        return set().union(*(application.parties() for application in self._applications.values()))

    def closed(self, connection: int, *, received_all: bool) -> None:
        """Records the end of a connection."""
        for application in self._applications.values():
            application.closed(connection, received_all=received_all)

"""The last errors of clients whose connections have ended, for operators who look later."""

from typing import Final, NamedTuple

from kproxy.proxy.context import Fault

#: Clients that are remembered.
_MOST: Final = 256


class ClientOrigin(NamedTuple):
    """A client, and where it came from."""

    client_id: str
    host: str


class LastFaults:
    """The last fault of each client, the oldest forgotten first."""

    def __init__(self) -> None:
        """Nothing went wrong."""
        self.by_client: dict[ClientOrigin, Fault] = {}

    def note(self, client_id: str, host: str, fault: Fault | None) -> None:
        """Takes over what a connection knows, when it ends."""
        if fault is None:
            return
        whose = ClientOrigin(client_id, host)
        self.by_client.pop(whose, None)
        if len(self.by_client) >= _MOST:
            del self.by_client[next(iter(self.by_client))]
        self.by_client[whose] = fault

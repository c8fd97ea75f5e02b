"""The ways in which an owner of a transactional id asks the broker, by the kind of client for which it asks."""

from typing import Final, NamedTuple


class OwnerPolicy(NamedTuple):
    """A kind of client for which the broker is asked."""

    #: A new epoch is asked for in the name of the last one: the broker refuses if a newer producer has the id. Else the
    #: producer that asks last has it.
    resumes: bool
    #: A transaction whose end is not certain is given up, and the next epoch aborts it if it is still open. Else the
    #: client asks for the same end again until it is certain.
    gives_up: bool
    #: An id that was not used for so long is forgotten. None: as long as the brokers keep it.
    idle_s: float | None


#: Clients of KIP-98.
CLIENT: Final = OwnerPolicy(resumes=True, gives_up=False, idle_s=None)
#: kproxy itself, for clients that know nothing of transactions.
MANAGED: Final = OwnerPolicy(resumes=False, gives_up=True, idle_s=3_600.0)

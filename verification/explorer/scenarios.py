"""Small worlds: who takes part, and what may go wrong how often."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple
from unittest.mock import patch

from kproxy.txn.claims import NOBODY, Claimant, next_claim
from kproxy.txn.ids import BLOCK_EPOCHS, LAST_EPOCH, Producer, client_producer_id
from kproxy.txn.log_records import Entry
from kproxy.txn.procedures import claim_keeper, log_owner
from verification.explorer.client import Client
from verification.explorer.instance import Instance
from verification.explorer.scripts import Script, Txn
from verification.explorer.world import NAME, World

_ONE: Final = Script((Txn((1, 1)),))
_SHORT: Final = Script((Txn((1,)),))
_AGAIN: Final = Script((Txn((1,), commits=False), Txn((1,))))
_PIPELINED: Final = Script((Txn((1, 1)),), pipelined=True)
_TWO_AT_ONCE: Final = Script((Txn((2,)),), pipelined=True)
_BETWEEN: Final = Script((Txn((1,), commits=False), Txn((0, 1)), Txn((1,))))
_ABORTED_ELSEWHERE: Final = ("a hears of 1.0.1", "80 s pass, in which all but b", "client 1 asks b: EndTxn abort")
_LATE: Final = Script((Txn((1,), commits=False), Txn((2,))))
_RENEWED: Final = Script((Txn((1,), commits=False), Txn((1,), renews=True)))
_RENEWED_AT_ONCE: Final = Script((Txn((1,), renews=True), Txn((1,))))
_RENEWED_INSTEAD: Final = Script((Txn((1,), commits=False, ends_renewed=True), Txn((1,))))
_MOVES: Final = Script((Txn((1,), offsets=True),))


def last_claim() -> Entry:
    """The claim of a process that has ended, before the last block of epochs; the client has the last epoch but one."""
    client = Producer(client_producer_id(99), LAST_EPOCH - 1)
    body = next_claim(None, Claimant(bytes(16), client, NOBODY, 60_000, "c", ""), 98)
    return Entry(NAME, body.replaced(first_epoch=LAST_EPOCH - 2 * BLOCK_EPOCHS))


class Scenario(NamedTuple):
    """One small world."""

    name: str
    about: str
    scripts: tuple[Script, ...]
    #: How often each fault may happen; ``again``: how often a client repeats what got an error for which clients retry.
    budget: Mapping[str, int]
    instances: str = "ab"
    #: What happens first, by the beginning of its text; before each of these what needs no fault.
    opening: tuple[str, ...] = ()
    #: Whether the id has been used for so long that its epochs, and the client's, end.
    is_old: bool = False

    def make(self) -> World:
        """Make the world at its beginning."""
        world = World(self.budget)
        if self.is_old:
            world.append(last_claim(), NOBODY, 0)
        world.instances = [Instance(world, name) for name in self.instances]
        world.clients = [Client(world, number, script) for number, script in enumerate(self.scripts, 1)]
        for client in world.clients:
            client.start()
        world.open(self.opening)
        return world


def _both(
    name: str,
    about: str,
    script: Script,
    others: int = 0,
    instances: str = "ab",
    *,
    apart: bool = False,
    is_old: bool = False,
    **budget: int,
) -> Iterator[Scenario]:
    """Yield it in both protocols; ``others``: more clients of one script; ``apart``: one at the other instance."""
    for second in (False, True):
        scripts = (script._replace(second=second),) * (1 + others)
        if apart:
            scripts += (scripts[0]._replace(at=1),)
        limits = {"again": 2, **budget}
        yield Scenario(f"{name}, TV{1 + second}", about, scripts, limits, instances, is_old=is_old)


def _second(scenarios: Iterator[Scenario]) -> Iterator[Scenario]:
    """Those in which clients speak the second protocol."""
    return (scenario for scenario in scenarios if scenario.scripts[0].second)


SCENARIOS: Final = (
    *_both("lost", "a request to the log is lost or late, or its response is", _ONE, instances="a", lost=1),
    *_both("killed", "kproxy is killed at any step", _ONE, instances="a", crash=1),
    *_both("killed twice", "and again, while it continues", _SHORT, instances="a", crash=2),
    *_both("unheard", "a response that is not heard, and perhaps another instance", _ONE, unheard=1, moves=1),
    *_both("spread", "records in flight through both instances", _PIPELINED, moves=2),
    *_both("moved", "a client goes to the other instance, and the log loses something", _ONE, lost=1, moves=1),
    *_both("moved on", "a client goes to the other instance, and its own is killed", _ONE, crash=1, moves=1),
    *_both("to and fro", "a client whose connections are spread, with an abort and a commit", _AGAIN, moves=3),
    Scenario(
        "stood still, TV1",
        "an instance has not read that another one has aborted its transaction, which its client has aborted there",
        (_AGAIN,),
        {"again": 2, "moves": 3, "still": 1},
        opening=_ABORTED_ELSEWHERE,
    ),
    Scenario(
        "stood still for longer, TV1",
        "and that the client has committed a transaction there since",
        (_BETWEEN,),
        {"again": 2, "moves": 3, "still": 1},
        opening=(*_ABORTED_ELSEWHERE, "client 1 asks b: EndTxn commit"),
    ),
    *_both("repeated", "an abort and a commit, a response that is not heard", _AGAIN, unheard=1, moves=1),
    *_both("rivals", "two producers want the id, and the log loses something", _SHORT, 1, lost=1, again=1),
    *_both("aborted", "an abort and a commit, and the log loses something", _AGAIN, instances="a", lost=1),
    *_second(
        _both("rivals elsewhere", "two producers want the id, each at its own instance", _SHORT, apart=True, again=1)
    ),
    *_both("renewed", "a client asks for its next identity, and something of it comes late", _RENEWED_AT_ONCE, late=1),
    *_second(
        _both("renewed elsewhere", "the same at any instance, a response is not heard", _RENEWED, unheard=1, moves=1)
    ),
    *_both("renewed instead", "a client aborts by asking for its next identity", _RENEWED_INSTEAD, late=1, moves=1),
    *_both("renewed, killed", "the same, while kproxy is killed", _RENEWED_INSTEAD, instances="a", crash=1),
    *_both("expired", "an id expires, whose client has not heard of its end", _SHORT, unheard=1, unused=1),
    *_both("late", "a request of an earlier transaction comes late", _LATE, instances="a", late=1),
    *_both("last epochs", "the last epochs of a client and of an id", _RENEWED, instances="a", is_old=True, lost=1),
    *_both("overdue", "a transaction takes too long", _SHORT, time=1, moves=1),
    *_both("offsets", "a group moves on, and the log loses something", _MOVES, instances="a", rebalance=1, lost=1),
    *_both("offsets killed", "kproxy is killed while offsets move", _MOVES, instances="a", crash=1),
    *_both(
        "forgotten", "kproxy was killed, and a partition forgets it", _TWO_AT_ONCE, instances="a", crash=1, forget=1
    ),
)


@contextmanager
def bounded() -> Iterator[None]:
    """Instances that claim an id again and again give up sooner: what happens then would only happen again."""
    with patch.object(claim_keeper, "_MOST_CLAIMS", 2), patch.object(log_owner, "_MOST_TRIES", 2):
        yield

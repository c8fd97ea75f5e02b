"""Small worlds: who takes part, and what may go wrong how often."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple
from unittest.mock import patch

from kproxy.txn.procedures import claim_keeper, log_owner
from verification.explorer.client import Client, Script, Txn
from verification.explorer.instance import Instance
from verification.explorer.world import World

_ONE: Final = Script((Txn((1, 1)),))
_SHORT: Final = Script((Txn((1,)),))
_AGAIN: Final = Script((Txn((1,), commits=False), Txn((1,))))
_PIPELINED: Final = Script((Txn((1, 1)),), pipelined=True)
_TWO_AT_ONCE: Final = Script((Txn((2,)),), pipelined=True)
_BETWEEN: Final = Script((Txn((1,), commits=False), Txn((0, 1)), Txn((1,))))
_ABORTED_ELSEWHERE: Final = ("a hears of 1.0.1", "80 s pass, in which all but b", "client 1 asks b: EndTxn abort")
_MOVES: Final = Script((Txn((1,), offsets=True),))


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

    def make(self) -> World:
        """At its beginning."""
        world = World(self.budget)
        world.instances = [Instance(world, name) for name in self.instances]
        world.clients = [Client(world, number, script) for number, script in enumerate(self.scripts, 1)]
        for client in world.clients:
            client.start()
        for text in self.opening:
            while (wanted := next((move for move in world.moves() if move.text.startswith(text)), None)) is None:
                next(move for move in world.moves() if not move.is_fault).do()
            wanted.do()
        return world


def _both(
    name: str, about: str, script: Script, others: int = 0, instances: str = "ab", **budget: int
) -> Iterator[Scenario]:
    """In both protocols; ``others``: so many more clients with the same script."""
    for second in (False, True):
        scripts = (script._replace(second=second),) * (1 + others)
        limits = {"again": 2, **budget}
        yield Scenario(f"{name}, TV{1 + second}", about, scripts, limits, instances)


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

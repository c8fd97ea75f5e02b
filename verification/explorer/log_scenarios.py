"""Small worlds of the log itself: it forgets its producers, is stated by snapshots and deleted; brokers forget, too."""

from typing import Final

from verification.explorer.scenarios import Scenario
from verification.explorer.scripts import Script, Txn

_FIRST: Final = Script((Txn((1,)),))
_SECOND: Final = _FIRST._replace(second=True)
_ABORTED: Final = Script((Txn((1,), commits=False),))
_TWO: Final = Script((Txn((1,)), Txn((1,))), second=True)
_TWO_AT_ONCE: Final = Script((Txn((2,)),), second=True, pipelined=True)
_MOVES: Final = Script((Txn((1,), offsets=True),), second=True)


def _one(name: str, about: str, script: Script, instances: str = "ab", *opening: str, **budget: int) -> Scenario:
    """Make a scenario with one client."""
    return Scenario(name, about, (script,), {"again": 2, **budget}, instances, opening)


LOG_SCENARIOS: Final = (
    _one("forgotten log, TV1", "the log forgets producers after a takeover by time", _FIRST, still=1, forget_log=1),
    _one("forgotten log, TV2", "the same, in the second protocol", _SECOND, still=1, forget_log=1),
    Scenario("last block", "a takeover begins a generation", (_FIRST,), {"again": 2, "still": 1}, is_old=True),
    _one("forgotten log, moved", "and its client moves", _SECOND, moves=1, unheard=1, forget_log=1),
    _one(
        *("aborted elsewhere", "a client aborts at another instance", _ABORTED, "ab", "client 1 asks a: Produce"),
        moves=1,
        unheard=1,
    ),
    _one(
        *("overdue and killed", "kproxy aborts a second transaction, and is killed before it can say so", _TWO, "a"),
        "client 1 asks a: Produce 1.0.2",
        time=1,
        crash=1,
    ),
    _one("offsets killed twice", "kproxy is killed again, while it continues", _MOVES, "a", crash=2),
    _one("resent", "a batch is sent twice, and its partition forgets it", _SECOND, "a", resend=1, forget=1),
    _one("refused", "a batch is sent twice, and refused", _TWO_AT_ONCE, "a", resend=1, refuse=1),
    _one("snapshots", "two of different prefixes", _SECOND, "a", snapshots=2),
    _one(
        "snapshots unread", "an instance lags, and what it would read next is deleted", _SECOND, snapshots=1, follow=2
    ),
    _one(
        "snapshots late", "what a snapshot asks of the log is lost or late", _SECOND, "a", snapshots=1, lost=1, back=1
    ),
    _one("snapshots killed", "kproxy is killed while it takes one", _SECOND, "a", snapshots=1, crash=1),
    _one("snapshots in halves", "a snapshot has two chunks", _SECOND, "a", snapshots=1, halves=1, lost=1),
    _one("snapshots continued", "a client moves meanwhile", _SECOND, snapshots=1, moves=1),
)

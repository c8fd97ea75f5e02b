"""Invariants of every state, and of the end of every run: by what clients have heard, and what readers see."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from kproxy.codec.messages import ErrorCode
from kproxy.net.txn.log_partition import LogPartition
from kproxy.net.txn.transaction_log import ViewSink
from kproxy.txn.verdict import Verdict
from kproxy.txn.views import Views
from verification.explorer.client import REPLACED
from verification.explorer.instance import read_on
from verification.explorer.world import World

if TYPE_CHECKING:
    from verification.explorer.client import Client
    from verification.explorer.scripts import Told

TWICE = "no record is seen twice"
LOST = "what was acknowledged in a committed transaction is seen"
ABORTED = "nothing of an aborted transaction is seen"
TORN = "a transaction is seen whole or not at all"
OFFSETS = "a group's offsets move with their transaction"
GIVEN = "an identity is one client's"
FENCED = "a client that nobody replaced is not fenced"
DOOMED = "a transaction is lost only to a fault"
STUCK = "every request is answered"
OPEN = "nothing stays undecided"
NOTICED = "what was decided stays, and the log names data before they are there"
ANSWERED = "the offset of a response holds its record"
LOADED = "a reader that begins at a snapshot knows what the log said"
INPUT = "the input of a group is consumed in one transaction"
PREPARED = "what is prepared waits for its decision"
ENDED = "a member ends at its broker as the log decides, and is reported as torn only if it is"
FAILED = "no procedure fails"


def broken(world: World) -> Iterator[tuple[str, str]]:
    """Those that do not hold, and why."""
    for text in world.broken:
        yield NOTICED, text
    for text in world.misplaced:
        yield ANSWERED, text
    seen = Counter(payload for payload, verdict in world.shown() if verdict is Verdict.COMMITTED)
    for payload, count in seen.items():
        if count > 1:
            yield TWICE, f"{payload} is seen {count} times"
    for client in world.clients:
        for told in client.told:
            yield from _records(client.name, told, seen)
        yield from _offsets(client, world.moved)
        yield from _errors(client, world)
    yield from _loaded(world)
    yield from world.wrong()
    owners = Counter(identity for identity, _ in set(world.given))
    for identity, count in owners.items():
        if count > 1:
            yield GIVEN, f"{count} clients have received {identity}"


def _records(name: str, told: "Told", seen: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    shown = [payload for payload in told.sent if seen[payload]]
    missing = [payload for payload in told.acknowledged if not seen[payload]]
    if told.committed and missing:
        yield LOST, f"{name} heard that {missing} are committed"
    if shown and (told.committed is False or told.is_denied or told.asked == [False]):
        yield ABORTED, f"{shown} of {name} are seen"
    if shown and not told.asked:
        yield ABORTED, f"{shown} are seen, and {name} has asked for no end"
    if shown and missing:
        yield TORN, f"{shown} of {name} are seen, {missing} are not"


#: Faults after which kproxy may have to abort a transaction.
_HARM = frozenset({"lost", "silent", "crash", "time", "still", "forget", "rebalance", "moves", "unused", "refuse"})

#: Nothing is open.
_IN_NO_TRANSACTION = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND})


def _errors(client: "Client", world: World) -> Iterator[tuple[str, str]]:
    """Yield what is wrong for a client that has the id alone."""
    if len(world.clients) > 1 or client.has_rival or not {"take", "harm"}.isdisjoint(world.budget.taken):
        return
    what, error = client.refused
    is_expired = "unused" in world.budget.taken and what != "EndTxn commit"
    is_harmed = bool(_HARM & world.budget.taken)
    if error in _IN_NO_TRANSACTION and not is_harmed:
        yield DOOMED, f"{client.name} received {error.name} for {what}"
    if error in REPLACED or (error == ErrorCode.INVALID_PRODUCER_ID_MAPPING and not is_expired):
        yield FENCED, f"{client.name} received {error.name} for {what}"
    if client.aborts and not is_harmed:
        yield DOOMED, f"{client.name} has to abort, and nothing has happened but {sorted(world.budget.taken)}"


def _loaded(world: World) -> Iterator[tuple[str, str]]:
    """Yield what a new reader, and instances that have read all, get wrong once something of the log is deleted."""
    if not world.log_start:
        return
    views = Views()
    read_on(LogPartition(0, ViewSink(views)), world)
    if not views.knows(0):
        yield LOADED, f"the log begins at {world.log_start}, and no snapshot says what was before"
    at_the_end = [one.views for one in world.instances if one.position == len(world.log) and one.views.knows(0)]
    for name in world.reader.names:
        if any(one.of(name) != world.reader.of(name) for one in (views, *at_the_end) if one.knows(0)):
            yield LOADED, f"readers do not agree on {name}"


def _offsets(client: "Client", moved: Collection[int]) -> Iterator[tuple[str, str]]:
    """Each transaction commits an offset of its own."""
    for number, told in enumerate(client.told, 1):
        offset = client.offset(number)
        if told.offsets and told.committed and offset not in moved:
            yield OFFSETS, f"{client.name} heard that its offsets {offset} are committed"
        if offset in moved and (told.committed is False or True not in told.asked):
            yield OFFSETS, f"offsets {offset} of {client.name} have moved, and it has heard of or asked for no commit"


def unfinished(world: World) -> Iterator[tuple[str, str]]:
    """Yield as ``broken`` does, where nothing more can happen."""
    for client in world.clients:
        if not client.ended:
            yield STUCK, f"{client.name} waits for ever"
    yield from world.left()
    if world.budget["time"] or any("fatal" in client.ended for client in world.clients):
        return
    for payload, verdict in world.shown():
        if verdict is Verdict.UNDECIDED:
            yield OPEN, f"{payload} is undecided"

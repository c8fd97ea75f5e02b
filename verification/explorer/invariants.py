"""What must hold in every state, and at the end of every run: by what clients have heard, and what readers see."""

from collections import Counter
from collections.abc import Iterator

from kproxy.txn.verdict import Verdict
from verification.explorer.world import World

TWICE = "no record is seen twice"
LOST = "what was acknowledged in a committed transaction is seen"
ABORTED = "nothing of an aborted transaction is seen"
TORN = "a transaction is seen whole or not at all"
OFFSETS = "a group's offsets move with their transaction"
STUCK = "every request is answered"
OPEN = "nothing stays undecided"
NOTICED = "what was decided stays, and the log names data before they are there"

FAILED = "no procedure fails"

INVARIANTS = (TWICE, LOST, ABORTED, TORN, OFFSETS, STUCK, OPEN, NOTICED, FAILED)


def broken(world: World) -> Iterator[tuple[str, str]]:
    """Those that do not hold, and why."""
    for text in world.broken:
        yield NOTICED, text
    seen = Counter(payload for payload, verdict in world.shown() if verdict is Verdict.COMMITTED)
    for payload, count in seen.items():
        if count > 1:
            yield TWICE, f"{payload} is seen {count} times"
    for client in world.clients:
        for told in client.told:
            shown = [payload for payload in told.sent if seen[payload]]
            if told.committed and (missing := [one for one in told.acknowledged if not seen[one]]):
                yield LOST, f"{client.name} heard that {missing} are committed"
            if shown and (told.committed is False or told.asked == [False]):
                yield ABORTED, f"{shown} of {client.name} are seen"
            if shown and not told.asked:
                yield ABORTED, f"{shown} are seen, and {client.name} has asked for no end"
            if shown and (missing := [one for one in told.acknowledged if not seen[one]]):
                yield TORN, f"{shown} of {client.name} are seen, {missing} are not"


def unfinished(world: World) -> Iterator[tuple[str, str]]:
    """As ``broken``, where nothing more can happen."""
    for client in world.clients:
        if not client.ended and not client.script.comes_later:
            yield STUCK, f"{client.name} waits for ever"
    if world.budget["time"] or any("fatal" in client.ended for client in world.clients):
        return
    for payload, verdict in world.shown():
        if verdict is Verdict.UNDECIDED:
            yield OPEN, f"{payload} is undecided"

"""What must hold in every state, and at the end of every run: by what clients have heard, and what readers see."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from kproxy.txn.verdict import Verdict
from verification.explorer.world import World

if TYPE_CHECKING:
    from verification.explorer.client import Client, Told

TWICE = "no record is seen twice"
LOST = "what was acknowledged in a committed transaction is seen"
ABORTED = "nothing of an aborted transaction is seen"
TORN = "a transaction is seen whole or not at all"
OFFSETS = "a group's offsets move with their transaction"
STUCK = "every request is answered"
OPEN = "nothing stays undecided"
NOTICED = "what was decided stays, and the log names data before they are there"
FAILED = "no procedure fails"


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
            yield from _records(client.name, told, seen)
        yield from _offsets(client, set(world.moved()))


def _records(name: str, told: "Told", seen: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    shown = [payload for payload in told.sent if seen[payload]]
    missing = [payload for payload in told.acknowledged if not seen[payload]]
    if told.committed and missing:
        yield LOST, f"{name} heard that {missing} are committed"
    if shown and (told.committed is False or told.asked == [False]):
        yield ABORTED, f"{shown} of {name} are seen"
    if shown and not told.asked:
        yield ABORTED, f"{shown} are seen, and {name} has asked for no end"
    if shown and missing:
        yield TORN, f"{shown} of {name} are seen, {missing} are not"


def _offsets(client: "Client", moved: Collection[int]) -> Iterator[tuple[str, str]]:
    """Of its n-th transaction a client commits the offset n."""
    for number, told in enumerate(client.told, 1):
        if told.offsets and told.committed and number not in moved:
            yield OFFSETS, f"{client.name} heard that its offsets {number} are committed"
        if number in moved and (told.committed is False or True not in told.asked):
            yield OFFSETS, f"offsets {number} of {client.name} have moved, and it has heard of or asked for no commit"


def unfinished(world: World) -> Iterator[tuple[str, str]]:
    """As ``broken``, where nothing more can happen."""
    for client in world.clients:
        if not client.ended:
            yield STUCK, f"{client.name} waits for ever"
    if world.budget["time"] or any("fatal" in client.ended for client in world.clients):
        return
    for payload, verdict in world.shown():
        if verdict is Verdict.UNDECIDED:
            yield OPEN, f"{payload} is undecided"

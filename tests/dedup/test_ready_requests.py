"""Every short run of a client with one request in flight and the next one ready: librdkafka with max.in.flight 1.

It makes its next request of all that waits before it reads a response, and sends that before it repeats what failed.
"""

from itertools import product
from string import ascii_lowercase

import pytest

from tests.dedup.talk import Talk, World

_REQUESTS = 5
#: A success in time; a time-out of a batch that is written after it; a refusal of what is not written.
_OUTCOMES = ("told", "late", "refused")


def waiting() -> Talk:
    """A client that was seen to wait for each response."""
    talk = World().connect()
    for _ in range(100):
        talk.did("z")
    talk.world.logs.clear()
    return talk


def send(talk: Talk, records: str, outcome: str) -> None:
    if outcome == "refused":
        talk.refuse()
        return
    request = talk.ask(records)
    if outcome == "late":
        talk.member.timed_out(request)
        talk.tell(request)
        talk.write(request)
    else:
        talk.write(request)
        talk.tell(request)


def run(outcomes: tuple[str, ...]) -> str:
    """What is in the log after requests with these outcomes, and then all that is left."""
    talk, letters = waiting(), iter(ascii_lowercase)
    ready, left = next(letters), ""
    for outcome in outcomes:
        flight = ready
        left += next(letters)
        ready, left = left, ""
        send(talk, flight, outcome)
        if outcome != "told":
            left = "".join(sorted(flight))
    for records in filter(None, (ready, left)):
        send(talk, records, "told")
    return talk.world.text()


@pytest.mark.parametrize("first", _OUTCOMES)
def test_each_record_is_written_once_whatever_times_out_or_is_refused(first: str) -> None:
    for others in product(_OUTCOMES, repeat=_REQUESTS - 1):
        log = run((first, *others))
        assert sorted(log) == list(ascii_lowercase[: _REQUESTS + 1]), (first, *others)

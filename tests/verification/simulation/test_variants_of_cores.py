"""A flaw that another rule of kproxy hides is shown with the cores alone."""

from unittest.mock import patch

from kproxy.dedup.retry_rules import Rules
from tests.dedup.talk import World
from verification.simulation import broken_rules


def written_when_an_answer_comes_late() -> str:
    """Responses are sent in order: one that waits for another may be late, though its own batch was quick."""
    world = World()
    talk = world.connect()
    request = talk.ask("a", due=world.now + 1)
    talk.write(request)
    world.now += 2
    talk.tell(request)
    talk.did("a")  # its client had given it up, and threw the response away
    return world.text()


def test_a_late_answer_that_counts_as_had_lets_the_retry_through() -> None:
    assert written_when_an_answer_comes_late() == "a"
    with patch.object(Rules, "is_too_late", broken_rules.no):
        assert written_when_an_answer_comes_late() == "aa"

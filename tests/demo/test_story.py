"""The story, told over stand-ins for the broker, the clients and the proxy: what it says and what it concludes."""

import contextlib
import io
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console

from kproxy.codec.batch import Record, build_batch
from kproxy.demo import story
from kproxy.demo.audit import LogTally
from kproxy.demo.demo_broker import Broker
from kproxy.demo.demo_clients import Delivery, Refusal, record_value
from kproxy.demo.failure import DemoFailed
from kproxy.demo.sidecar import Sidecar

RECORDS = 4


class Stage:
    """What the stand-ins do; a test alters it before the story begins."""

    def __init__(self) -> None:
        self.refusal: Refusal | None = Refusal("timed out", "Disconnected while requesting")
        self.delivery = Delivery(acknowledged=set(range(RECORDS)))
        self.consumed = list(range(RECORDS))
        self.logged = list(range(RECORDS))

    @contextlib.contextmanager
    def open_broker(self, kind: str) -> Iterator[Broker]:
        yield StandIn(f"A {kind} broker", "127.0.0.1:1", "an excuse")

    @contextlib.contextmanager
    def open_sidecar(self, bootstrap: str) -> Iterator[Sidecar]:
        yield Sidecar("127.0.0.1:2", "127.0.0.1:3")

    def attempt(self, bootstrap: str, topic: str, seconds: float) -> Refusal | None:
        return self.refusal

    def send(self, bootstrap: str, topic: str, count: int, progress: Callable[[int], None]) -> Delivery:
        progress(count)
        return self.delivery

    def receive(self, bootstrap: str, topic: str, group: str, expected: int) -> Iterator[int]:
        yield from self.consumed

    def read_log(self, bootstrap: str, topic: str, partitions: int) -> LogTally:
        tally = LogTally()
        records = [Record(at, 1000, None, record_value(number)) for at, number in enumerate(self.logged)]
        tally.add(bytes(build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0)))
        return tally


class StandIn(Broker):
    """A broker that takes every topic."""

    def create_topic(self, name: str, partitions: int) -> None:
        pass


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage()
    for name in ("open_broker", "open_sidecar", "attempt", "send", "receive", "read_log"):
        monkeypatch.setattr(story, name, getattr(stage, name))
    return stage


def told() -> tuple[bool, str]:
    """Tell the story; gives its verdict and its text."""
    page = io.StringIO()
    console = Console(file=page, width=200, highlight=False)
    return story.tell(records=RECORDS, broker="toy", keep=False, console=console), page.getvalue()


def row(text: str, name: str) -> str:
    """The count in one row of the closing table."""
    (count,) = [words[1] for words in map(str.split, text.splitlines()) if len(words) > 1 and words[0] == name]
    return count


def test_all_went_well(stage: Stage) -> None:
    good, text = told()
    assert good
    assert (row(text, "sent"), row(text, "lost"), row(text, "duplicate")) == ("4", "0", "0")
    for said in ("A toy broker", "an excuse", "refused", "Disconnected", "127.0.0.1:2", "http://127.0.0.1:3/metrics"):
        assert said in text


def test_a_lost_record_is_reported_and_makes_the_verdict_bad(stage: Stage) -> None:
    stage.logged.remove(2)
    good, text = told()
    assert not good
    assert row(text, "lost") == "1"


def test_a_record_read_twice_is_reported_and_makes_the_verdict_bad(stage: Stage) -> None:
    stage.consumed.append(2)
    good, text = told()
    assert not good
    assert row(text, "duplicate") == "1"


def test_failed_sends_are_explained_by_the_first(stage: Stage) -> None:
    stage.delivery = Delivery({0, 1}, {2: "out of luck", 3: "later"})
    good, text = told()
    assert not good
    assert "2 records failed, the first of them 2: out of luck" in text


def test_a_broker_that_refuses_nothing_spoils_the_story(stage: Stage) -> None:
    stage.refusal = None
    with pytest.raises(DemoFailed, match="nothing to show"):
        told()

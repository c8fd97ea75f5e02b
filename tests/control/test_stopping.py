import signal
from collections.abc import AsyncIterator

from structlog.testing import capture_logs

from kproxy.control.stopping import Stop


async def test_signals() -> None:
    stop = Stop()
    seen: list[tuple[int, bool, bool]] = []

    async def signals() -> AsyncIterator[int]:
        for signum in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            yield signum
            seen.append((signum, stop.requested.is_set(), stop.at_once.is_set()))

    reloads: list[None] = []

    async def reload() -> None:
        reloads.append(None)

    with capture_logs() as lines:
        await stop.follow(signals(), reload)
    assert seen == [
        (signal.SIGHUP, False, False),
        (signal.SIGTERM, True, False),
        (signal.SIGHUP, True, False),
        (signal.SIGINT, True, True),
    ]
    assert len(reloads) == 2
    assert [line["signal"] for line in lines] == ["SIGTERM", "SIGINT"]


def test_a_successor_is_an_end_without_a_delay() -> None:
    stop = Stop()
    with capture_logs():
        stop.replaced()
    assert stop.requested.is_set()
    assert stop.handed_over
    assert not stop.at_once.is_set()

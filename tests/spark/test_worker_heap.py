"""Workers that are kept for the next task leave what they have imported out of searches for garbage."""

from collections.abc import Iterator

import pytest

from kproxy.spark import worker_heap
from kproxy.spark.worker_heap import settle_worker


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    settle_worker.cache_clear()
    calls: list[str] = []
    monkeypatch.setattr(worker_heap, "settle", lambda: calls.append("settled"))
    yield calls
    settle_worker.cache_clear()


def test_a_worker_settles_once(settled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    settle_worker()
    settle_worker()
    assert settled == ["settled"]


def test_a_process_of_the_users_is_left_alone(settled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    settle_worker()
    assert not settled

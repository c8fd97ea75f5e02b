"""Which owner a driver's query has, in each of the processes that Spark starts for it."""

from pathlib import Path

from kproxy.client import OwnerId
from kproxy.spark.owner_memory import OwnerMemory
from tests.spark.sink_samples import options


class Takes:
    """Each call is one epoch more."""

    def __init__(self) -> None:
        self.epoch = 0

    def __call__(self) -> OwnerId:
        self.epoch += 1
        return OwnerId(7, self.epoch)


def test_a_query_takes_the_id_once(tmp_path: Path) -> None:
    take = Takes()
    for _ in range(2):
        assert OwnerMemory(options(checkpoint="/a"), tmp_path).owner(take) == OwnerId(7, 1)


def test_of_two_queries_under_one_id_the_older_one_keeps_its_owner(tmp_path: Path) -> None:
    take = Takes()
    older, newer = (OwnerMemory(options(checkpoint=where), tmp_path) for where in ("/a", "/b"))
    assert older.owner(take) == OwnerId(7, 1)
    assert newer.owner(take) == OwnerId(7, 2)
    assert older.owner(take) == OwnerId(7, 1)
    assert newer.owner(take) == OwnerId(7, 2)


def test_queries_whose_checkpoint_is_the_sessions_are_known_by_name(tmp_path: Path) -> None:
    take = Takes()
    for name in ("one", "two", "one"):
        OwnerMemory(options(query_name=name), tmp_path).owner(take)
    assert take.epoch == 2


def test_a_fenced_query_that_is_started_again_takes_the_id_again(tmp_path: Path) -> None:
    take = Takes()
    memory = OwnerMemory(options(checkpoint="/a"), tmp_path)
    memory.owner(take)
    memory.forget()
    memory.forget()
    assert memory.owner(take) == OwnerId(7, 2)
    assert len(list(tmp_path.iterdir())) == 1

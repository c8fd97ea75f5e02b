"""Last stable offsets, asked of a fake broker that has transactions of its own."""

from pathlib import Path

import trio
from confluent_kafka import Producer

from kproxy.testing.fake_broker.fake_server import open_fake_cluster
from tests.net.harness import eventually
from tests.support.patience import PATIENCE_S
from verification.chaos.recorder import Recorder
from verification.chaos.stable_offsets import StableOffsets
from verification.history import Commit, Kind, Operation, read_history


def told(recorder: Recorder) -> list[Operation]:
    recorder.flush()
    return list(read_history(recorder.path))


async def test_what_is_returned_is_recorded_and_where_something_is_open_is_undecided(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        async with open_fake_cluster() as cluster:
            host, _, port = cluster.bootstrap.rpartition(":")
            prober = StableOffsets("prober", {"t": 1}, (host, int(port)), recorder)
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "id", "log_level": 0})
            await trio.to_thread.run_sync(producer.init_transactions, PATIENCE_S)
            producer.begin_transaction()
            producer.produce("t", "v", partition=0)
            await trio.to_thread.run_sync(producer.flush, PATIENCE_S)
            assert await prober.undecided() == [("t", 0)]
            assert await prober.ask(committed=True) == {("t", 0): 0}
            assert await prober.ask(committed=False) == {("t", 0): 1}
            await trio.to_thread.run_sync(producer.commit_transaction, PATIENCE_S)
            assert await prober.undecided() == []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(prober.run)
                await eventually(lambda: bool(told(recorder)))
                nursery.cancel_scope.cancel()
        assert await prober.undecided() == [("t", 0)]  # nobody is there to be asked
        found = told(recorder)
    assert {operation.kind for operation in found} == {Kind.STABLE}
    assert found[-1].commits == (Commit("t", 0, 2),)

"""Last stable offsets, asked of a fake broker that has transactions of its own."""

from pathlib import Path

import trio
from confluent_kafka import Producer

from kproxy.testing.fake_broker.fake_server import open_fake_cluster
from verification.chaos.recorder import Recorder
from verification.chaos.stable_offsets import StableOffsets
from verification.history import Commit, Kind, read_history


async def test_what_is_returned_is_recorded_and_where_something_is_open_is_undecided(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        async with open_fake_cluster() as cluster:
            host, _, port = cluster.bootstrap.rpartition(":")
            prober = StableOffsets("prober", {"t": 1}, (host, int(port)), recorder)
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "id", "log_level": 0})
            await trio.to_thread.run_sync(producer.init_transactions, 30)
            producer.begin_transaction()
            producer.produce("t", "v", partition=0)
            await trio.to_thread.run_sync(producer.flush, 30)
            assert await prober.undecided() == [("t", 0)]
            assert await prober.ask(committed=True) == {("t", 0): 0}
            assert await prober.ask(committed=False) == {("t", 0): 1}
            await trio.to_thread.run_sync(producer.commit_transaction, 30)
            assert await prober.undecided() == []
            with trio.move_on_after(0.2):
                await prober.run()
        assert await prober.undecided() == [("t", 0)]  # nobody is there to be asked
        recorder.flush()
        told = list(read_history(recorder.path))
    assert {operation.kind for operation in told} == {Kind.STABLE}
    assert told[-1].commits == (Commit("t", 0, 2),)

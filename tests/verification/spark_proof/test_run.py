"""The proof in the small: a few thousand numbers while executors, workers, kproxy and the driver are killed."""

from pathlib import Path

import pytest

from verification.spark_proof.job import KPROXY
from verification.spark_proof.run import Job, batch_ends, stage


def test_batches_are_read_from_the_checkpoint(tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for batch, end in enumerate((5, 9)):
        (offsets / str(batch)).write_text(f'v1\n{{"conf":{{}}}}\n{{"proof-input": {{"0": {end}, "1": {end}}}}}')
    (offsets / ".9.crc").write_text("")
    assert batch_ends(tmp_path) == {0: [5, 9], 1: [5, 9]}


@pytest.mark.spark
@pytest.mark.kafka
def test_each_number_is_once_in_each_topic(tmp_path: Path) -> None:
    job = Job(
        records=4000, batch=1000, kills=3, pause=5, seconds=600, seed=3, brokers=1, master="local-cluster[2,1,1024]"
    )
    with stage(job, tmp_path) as made:
        outcome = made.run(KPROXY, lambda what, count: None)
    assert outcome.holds, outcome.as_json()
    assert outcome.looks
    assert outcome.batches == 4

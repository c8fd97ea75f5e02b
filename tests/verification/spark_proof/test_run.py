"""The proof in the small: a few thousand numbers while executors, workers, kproxy and the driver are killed."""

from collections import Counter
from pathlib import Path

import pytest

from kproxy.proxy.coordinator_rules import Home
from verification.spark_proof.driver import DRIVER, EXECUTOR, WORKER
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
@pytest.mark.parametrize(
    ("home", "victims"), [(Home.KPROXY, (WORKER, KPROXY, DRIVER)), (Home.BROKER, (DRIVER, EXECUTOR))]
)
def test_each_number_is_once_in_each_topic(home: Home, victims: tuple[str, ...], tmp_path: Path) -> None:
    master = "local-cluster[2,1,1024]"
    job = Job(4000, 1000, kills=0, pause=0, seconds=1500, seed=3, brokers=1, master=master, home=home, victims=victims)
    with stage(job, tmp_path) as made:
        outcome = made.run(KPROXY, lambda what, count: None)
    assert outcome.holds, outcome.as_json()
    assert outcome.looks, outcome.as_json()
    assert outcome.batches == job.batches, outcome.as_json()
    assert outcome.kills == Counter(victims), outcome.as_json()

from pathlib import Path

import pytest

from kproxy.codec.batch import Record, build_batch
from kproxy.config import StartupError
from kproxy.spark.audit.audit_size import offsets_to_read
from kproxy.spark.audit.audit_state import PartitionProgress, State, save_state
from kproxy.spark.audit.log_reading import LOG
from kproxy.spark.audit.request import Request
from tests.spark.fake_cluster import fake_cluster


def test_what_an_audit_has_to_read(tmp_path: Path) -> None:
    with fake_cluster() as fake, fake.client() as client:
        for topic in ("orders", "bills", LOG):
            client.create_topic(topic, 2)
            for _ in range(3):
                client.produce(topic, 1, build_batch([Record(0, 1000, None, b"v"), Record(1, 2000, None, b"w")]))
        request = Request(fake.bootstrap, None, "orders", tmp_path)
        assert offsets_to_read(request) == 6 + 6
        assert offsets_to_read(request._replace(topics=".*")) == 6 + 12
        save_state(tmp_path, State("former", (PartitionProgress("orders", 1, 5, 4),)))
        assert offsets_to_read(request) == 6 + 2
        assert offsets_to_read(request._replace(fresh=True)) == 6 + 6
        with pytest.raises(StartupError, match="no such topic: order;"):
            offsets_to_read(request._replace(topics="order"))

"""A broker maps its classes from the archive that another one wrote."""

from pathlib import Path

import pytest

from kproxy.testing.archive_kafka import archive_kafka
from kproxy.testing.kafka import RealKafka


@pytest.mark.kafka
def test_a_broker_uses_it() -> None:
    archive = archive_kafka()
    with RealKafka() as kafka:
        mapped = Path(f"/proc/{kafka.pid(0)}/maps").read_text()
        assert str(archive) in mapped
        assert "cds" not in kafka.log_tail(0)

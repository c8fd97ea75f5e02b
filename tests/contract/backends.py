"""Other back ends than the newest Kafka, for the contract."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

import pytest

from kproxy.testing.kafka import PATIENT, RealKafka
from tests.support.kfake import kfake

VERSIONS: Final[Mapping[str, str]] = MappingProxyType({"kafka-3.9": "3.9.1", "kafka-2.8": "2.8.2"})
OTHERS: Final[list[Any]] = [
    *(pytest.param(name, marks=[pytest.mark.kafka, pytest.mark.backends]) for name in VERSIONS),
    pytest.param("kfake", marks=pytest.mark.backends),
]
EACH: Final[list[Any]] = ["fake", pytest.param("real", marks=pytest.mark.kafka), *OTHERS]


@contextmanager
def start(name: str, brokers: int) -> Iterator[str]:
    """Run a back end until the block ends; gives the addresses of its brokers."""
    if name == "kfake":
        with kfake(brokers) as addresses:
            yield addresses
        return
    config = PATIENT if brokers == 1 else {"min.insync.replicas": "2"}
    with RealKafka(brokers, VERSIONS[name], config) as kafka:
        yield kafka.bootstrap

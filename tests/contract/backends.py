"""Other back ends than the newest Kafka, for the contract."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest
import yaml

from kproxy.testing.kafka import PATIENT, RealKafka
from tests.support.kfake import kfake

VERSIONS: Final[Mapping[str, str]] = MappingProxyType(
    {"kafka-4.3": "4.3.0", "kafka-3.9": "3.9.1", "kafka-2.8": "2.8.2"}
)
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


#: What differs from Kafka 4.4, by back end.
DIFFERENCES: Final[Mapping[str, list[dict[str, Any]]]] = yaml.safe_load(
    (Path(__file__).parent / "backends.yaml").read_text(encoding="utf-8")
)
#: Files of the contract that other back ends are held to; those in an ordinary run come first.
IN_ALL_RUNS: Final = ("test_produce.py", "test_producers.py", "test_transactions.py")
BOUND: Final = (
    *IN_ALL_RUNS,
    "test_fetch.py",
    "test_offsets.py",
    "test_group_transactions.py",
    "test_versions.py",
    "test_rewriting.py",
)


def backend_of(item: pytest.Item) -> str | None:
    """The other back end on which a test of the contract runs, if any."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    name = parameters.get("bootstrap") or parameters.get("cluster_bootstrap")
    return name if name in DIFFERENCES else None


def expected(item: pytest.Item, backend: str) -> Iterator[pytest.MarkDecorator]:
    """What a row says of a test: it must fail."""
    name, _, parameters = item.name.rstrip("]").partition("[")
    others = "-".join(part for part in re.split(rf"-?{re.escape(backend)}-?", parameters) if part)
    known_as = f"{name}[{others}]" if others else name
    for row in DIFFERENCES[backend]:
        if any(re.fullmatch(pattern, known_as) for pattern in row["tests"]):
            # Of some rows chance decides.
            yield pytest.mark.xfail(reason=row["lacks"], run=row.get("run", True), strict=not row.get("maybe", False))
            return

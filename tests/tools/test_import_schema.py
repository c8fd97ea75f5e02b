import re
from pathlib import Path

import pytest

from kproxy.testing.kafka import DEFAULT_VERSION
from tests.interop.catalog import CLIENTS
from tests.interop.transactional import TRANSACTIONAL
from tests.support.java import jars
from tools import import_schema

SCHEMA = {path.name: path.read_text() for path in import_schema.SCHEMA.glob("*.txt")}


def newest_of_the_tests() -> str:
    """The newest release of Kafka that any test runs, as its broker or as its client."""
    clients = (re.fullmatch(r"java-([\d.]+)", client.name) for client in (*CLIENTS, *TRANSACTIONAL))
    releases = [DEFAULT_VERSION, *(match[1] for match in clients if match)]
    return max(releases, key=lambda release: [int(part) for part in release.split(".")])


@pytest.fixture(autouse=True)
def cached_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        import_schema, "fetch_jars", lambda version, _: jars(f"org.apache.kafka:kafka-clients:{version}")
    )


@pytest.mark.java
@pytest.mark.parametrize("release", sorted({import_schema.NEW, newest_of_the_tests()}))
def test_the_tables_have_all_versions_and_fields_of_the_newest_kafka_that_the_tests_run(release: str) -> None:
    """If this fails, CONTRIBUTING.md has the recipe "Importing the next version of Kafka"."""
    found = import_schema.differences(import_schema.released_tables(release), SCHEMA)
    assert not found, "\n".join(found)


@pytest.mark.java
def test_all_tables_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_schema, "SCHEMA", tmp_path)
    assert import_schema.main([]) == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == SCHEMA


@pytest.mark.java
def test_a_check_names_the_fields_and_versions_in_which_a_release_differs(capsys: pytest.CaptureFixture[str]) -> None:
    assert import_schema.main(["--check", import_schema.NEW]) == 0
    assert import_schema.main(["--check", import_schema.OLD]) == 1
    told = capsys.readouterr().out
    assert "schema/api_versions.txt lacks `request 0-4 flexible=3+`" in told
    assert "schema/api_versions.txt has, but the release does not, `NodeId int32 5+ default=-1 ignorable`" in told
    assert "schema/errors.txt has, but the release does not, `136 CONTROLLER_ID_NOT_REGISTERED`" in told


def test_what_is_missing_is_named_by_table_and_field() -> None:
    ours = {"same.txt": "api 1 Same\n", "fetch.txt": "request 0-1 flexible=none\n  A int8 0+\n"}
    theirs = {**ours, "fetch.txt": "request 0-2 flexible=none\n  A int8 0+\n  B uuid 2+\n", "new.txt": "api 99 New\n"}
    assert import_schema.differences(ours, ours) == []
    assert import_schema.differences(theirs, ours) == [
        "schema/fetch.txt has, but the release does not, `request 0-1 flexible=none`",
        "schema/fetch.txt lacks `request 0-2 flexible=none`",
        "schema/fetch.txt lacks `B uuid 2+`",
        "schema/new.txt lacks `api 99 New`",
    ]


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [((0, 2), (3, 9), (0, 9)), ((0, 5), (3, 9), (0, 9)), (import_schema.EMPTY, (1, 1), (1, 1))],
)
def test_union(first: tuple[int, int], second: tuple[int, int], both: tuple[int, int]) -> None:
    assert import_schema.union(first, second) == both
    assert import_schema.union(second, first) == both


def test_versions_with_a_hole_are_refused() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        import_schema.union((0, 1), (3, 4))

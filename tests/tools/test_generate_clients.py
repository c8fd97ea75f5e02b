"""The table of clients says what the tests showed of what the catalog has now."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop import results
from tests.interop.catalog import CLIENTS, Abilities
from tests.interop.request_versions import NAMES
from tests.interop.results import ALL, HOMES, Result, add, fingerprint, holder, in_home, missing, read, releases
from tests.interop.transactional import TRANSACTIONAL
from tools import generate_clients
from tools.generate_clients import (
    BEGIN,
    BEGIN_PRODUCERS,
    BEGIN_TRANSACTIONAL,
    BEGIN_VERSIONS,
    END,
    END_PRODUCERS,
    END_TRANSACTIONAL,
    END_VERSIONS,
    corners_drawn,
    drawn,
    producers_table,
    table,
    transactional_table,
    versions_table,
)

ONE, OTHER = CLIENTS[0], CLIENTS[-1]
SENT = {"InitProducerId": "4", "Produce": "3 9"}
EACH = {
    name: Result("2026-01-02", "Kafka 4", fingerprint(client), dict.fromkeys(releases(name), SENT))
    for name, client in ALL.items()
}
DOCS = ((BEGIN, END), (BEGIN_PRODUCERS, END_PRODUCERS))
CORNERS = ((BEGIN_TRANSACTIONAL, END_TRANSACTIONAL), (BEGIN_VERSIONS, END_VERSIONS))


def places(marks: tuple[tuple[str, str], ...]) -> str:
    return "\n".join(f"a\n{begin}\nold\n{end}\nb" for begin, end in marks)


def shown(*clients: object) -> dict[str, Result]:
    return {one.name: Result("2026-01-02", "Kafka 4", fingerprint(one)) for one in clients}  # type: ignore[attr-defined]


def test_a_row_says_what_the_client_can_do_and_when_that_was_shown() -> None:
    _, tested, _, head, _, row = table([ONE], shown(ONE)).splitlines()
    assert tested == "Tested: 2026-01-02, Kafka 4."
    assert head == "| client | settings | without kproxy | format | codecs | re-encoded |"
    assert row == (
        "| Java 0.8.2.2 | `KafkaProducer`; `SimpleConsumer` with OffsetCommit v1 | no | 0 | gzip snappy lz4 | zstd |"
    )


@pytest.mark.parametrize(
    ("can", "cells"),
    [
        (Abilities(), "2 | all | |"),
        (Abilities(headers=False, reads_headers=False), "1 | all | |"),
        (Abilities(reads_headers=False), "2, without reading headers | all | |"),
        (Abilities(reads_timestamps=False), "2, without reading timestamps | all | |"),
        (Abilities(codecs=("none", "gzip"), recoded=()), "2 | gzip; reads all | |"),
        (
            Abilities(codecs=("none", "gzip"), reads=("none", "gzip", "lz4"), recoded=("lz4", "zstd")),
            "2 | gzip; reads gzip lz4 | zstd |",
        ),
    ],
)
def test_a_row_has_the_format_and_the_codecs_that_the_client_writes_and_reads(can: Abilities, cells: str) -> None:
    client = replace(ONE, can=can)
    assert table([client], shown(client)).splitlines()[5].endswith(f"| no | {cells}")


def test_a_client_that_was_tested_on_another_day_has_its_date_in_its_row() -> None:
    found = shown(*CLIENTS[:3])
    found[CLIENTS[1].name] = found[CLIENTS[1].name]._replace(date="2025-12-31")
    _, tested, _, head, _, *rows = table(CLIENTS[:3], found).splitlines()
    assert tested == "Tested: 2026-01-02, Kafka 4, unless the row has another date."
    assert head.endswith("| re-encoded | tested |")
    assert [row.split("|")[-2].strip() for row in rows] == ["", "2025-12-31, Kafka 4", ""]


def test_every_client_of_the_catalog_has_a_title_and_rows_differ() -> None:
    rows = table(CLIENTS, shown(*CLIENTS)).splitlines()[5:]
    assert len(set(rows)) == len(CLIENTS)
    assert all(client.title for client in CLIENTS)


def test_a_row_of_a_producer_says_in_which_homes_each_run_tests_it() -> None:
    [one] = [client for client in TRANSACTIONAL if client.name == "java-0.11.0.3"]
    [other] = [client for client in TRANSACTIONAL if client.name == "librdkafka-2.0.2"]
    old = {in_home(HOMES[-1], other.name): EACH[in_home(HOMES[-1], other.name)]._replace(date="2025-12-31")}
    assert transactional_table([one, other], EACH | old).splitlines()[5:] == [
        "| Java 0.11.0.3 | each run | each run | each run | |",
        "| librdkafka 2.0.2 | each run | yes | yes | 2025-12-31, Kafka 4 |",
    ]


def test_a_library_has_one_row_with_all_releases_whose_transactions_are_tested() -> None:
    rows = producers_table(TRANSACTIONAL).splitlines()[2:]
    assert "| librdkafka | 2.16.1; 2.0.2 |" in rows
    assert len(rows) == len({client.title.split()[0] for client in TRANSACTIONAL})


@pytest.mark.parametrize("tested", [{}, shown(replace(ONE, refused=not ONE.refused))])
def test_a_client_that_was_not_tested_as_it_is_now_is_named(tested: dict[str, Result]) -> None:
    others = {name: result for name, result in EACH.items() if name != ONE.name}
    with pytest.raises(ValueError, match=f"{ONE.name}; run make client-results"):
        drawn(places(DOCS), others | tested)
    with pytest.raises(ValueError, match=f"{ONE.name}; run make client-results"):
        corners_drawn(places(CORNERS), others | tested)


def test_a_producer_whose_requests_were_not_recorded_is_named() -> None:
    name = holder("kafkajs-2.2.4")
    assert missing(EACH | {name: EACH[name]._replace(versions={})}) == [name]
    assert missing(EACH | {name: EACH[name]._replace(versions={"4.4.0": SENT})}) == [name]


def test_a_row_of_versions_has_those_that_differ_for_an_old_kafka_in_brackets() -> None:
    [client] = [client for client in TRANSACTIONAL if client.name == "kafkajs-2.2.4"]
    new = {"InitProducerId": "4", "Produce": "13", "TxnOffsetCommit": "5 6"}
    old = {"AddPartitionsToTxn": "3", "InitProducerId": "4", "Produce": "11"}
    both = {holder(client.name): EACH[holder(client.name)]._replace(versions={"4.4.0": new, "3.9.1": old})}
    head, _, row = versions_table([client], both).splitlines()
    assert head == f"| producer | {' | '.join(NAMES)} |"
    cells = dict(zip(NAMES, (cell.strip() for cell in row.split("|")[2:-1]), strict=True))
    assert cells["InitProducerId"] == "4"
    assert cells["AddPartitionsToTxn"] == "(3)"
    assert cells["TxnOffsetCommit"] == "5 6 (-)"
    assert cells["Produce"] == "13 (11)"
    assert cells["EndTxn"] == ""


def test_a_row_of_a_producer_that_does_not_run_on_the_old_kafka_has_no_brackets() -> None:
    [client] = [client for client in TRANSACTIONAL if client.name == "java-4.4.0-consumer-protocol"]
    [_, _, row] = versions_table([client], EACH).splitlines()
    assert "(" not in row


def test_words_about_a_client_may_change_without_a_test() -> None:
    assert missing(shown(ONE), {ONE.name: replace(ONE, title="another", settings="words")}) == []


@pytest.mark.parametrize(
    ("draw", "marks", "row"),
    [(drawn, DOCS, "| kafkajs | 2.2.4 |"), (corners_drawn, CORNERS, "| kafkajs 2.2.4 | each run |")],
    ids=["docs", "corners"],
)
def test_a_page_needs_a_place_for_each_table(
    draw: Callable[[str, Mapping[str, Result]], str], marks: tuple[tuple[str, str], ...], row: str
) -> None:
    page = draw(places(marks), EACH)
    assert "old" not in page
    assert row in page
    for place in (mark for pair in marks for mark in pair):
        with pytest.raises(ValueError, match="has no place"):
            draw(places(marks).replace(place, ""), EACH)


def test_what_passed_is_recorded_and_what_is_no_client_any_more_goes(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    add({ONE.name, "gone"}, "2026-01-02", "Kafka 4", path)
    add({OTHER.name}, "2026-01-03", "Kafka 5", path, {OTHER.name: {"4.4.0": SENT}})
    assert {name: row.date for name, row in read(path).items()} == {ONE.name: "2026-01-02", OTHER.name: "2026-01-03"}
    assert {name: row.versions for name, row in read(path).items()} == {ONE.name: {}, OTHER.name: {"4.4.0": SENT}}
    assert '"versions": {}' not in path.read_text()


def test_the_tables_of_the_docs_are_up_to_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate_clients.main(["--check"]) == 0
    monkeypatch.setattr(generate_clients, "read", dict)
    assert generate_clients.main(["--check"]) == 1
    assert "not tested as they are now" in capsys.readouterr().err
    assert results.RESULTS.exists()

import pyarrow as pa
import pytest

from kproxy.spark.audit.content import digest, duplicate_keys, identical_runs, later_of_a_key, plain_key, within_offsets
from kproxy.spark.audit.engine import Engine
from kproxy.spark.audit.tables import PLAIN, table
from tests.spark.audit.frames import LIMITS, Found, Row, batch, record, span, tables

FAR = 1 << 18


def written(topic: str, contents: list[int], first: int = 0) -> list[Row]:
    return [record(topic, first + at, content) for at, content in enumerate(contents)]


def bare(topic: str, offset: int, records: int) -> Row:
    return batch(topic, offset, records, sequence=-1, producer_id=-1)


AGES = [900, 900, 900, 890, 890, 890, 60, 60, 60, 1, 1, 1]
BATCHES = [
    bare("again", 0, 10),
    batch("different", 0, 10),
    batch("short", 0, 10),
    batch("constant", 0, 10),
    batch("others", 0, 3),
    batch("others", 3, 3, producer_id=8),
    batch("others", 6, 3),
    batch("others", 9, 3),
    bare("far", FAR - 2, 4),
    bare("far", FAR + 2, 4),
    batch("across", 0, 8),
    batch("before", 0, 8),
]
RECORDS = [
    *written("again", [1, 2, 3, 4, 9, 1, 2, 3, 4, 8]),
    *written("different", [1, 2, 3, 4, 5, 6]),
    *written("short", [1, 2, 7, 1, 2, 8]),
    *written("constant", [5, 5, 5]),
    *(record("others", at, content, age=AGES[at]) for at, content in enumerate([1, 2, 3] * 4)),
    *written("far", [1, 2, 3, 1, 2, 3], FAR - 2),
    *written("across", [1, 2, 3, 4, 1, 2, 3, 4]),
    *written("before", [1, 2, 3, 4, 1, 2, 3, 4]),
    # keys
    record("keys", 0, 11, "a", age=50),
    record("keys", 7, 12, "a", age=40, partition=1),
    record("keys", 9, 13, "a", age=30),
    record("keys", 1, 14, "b"),
    record("keys", 2, 15, None),
    record("keys", 3, 16, None),
    record("other-keys", 1, 17, "b"),
    record("new-keys", 0, 18, "old"),
    record("new-keys", 1, 19, "old"),
    record("new-keys", 2, 20, "new"),
    record("new-keys", 5, 21, "new"),
]
SPANS = [span("across", start=6), span("before", start=8), span("new-keys", start=5)]


@pytest.fixture(scope="module")
def given(engine: Engine) -> Engine:
    return tables(engine, batches=BATCHES, records=RECORDS, spans=SPANS)


@pytest.fixture(scope="module")
def runs(given: Engine) -> Found:
    return Found(given, identical_runs(LIMITS._replace(window_ms=100_000)))


@pytest.fixture(scope="module")
def keys(given: Engine) -> Found:
    return Found(given, duplicate_keys(LIMITS))


def test_a_batch_written_again_is_a_run(runs: Found) -> None:
    names = ("producer_id", "first_offset", "last_offset", "earlier_offset", "repeated")
    assert runs.of("again", *names) == [(-1, 5, 8, 0, 4)]


@pytest.mark.parametrize("topic", ["different", "short", "constant", "keys"])
def test_fewer_than_so_many_in_a_row_are_none(runs: Found, topic: str) -> None:
    assert runs.of(topic, "first_offset") == []


def test_a_run_is_of_one_producer_and_within_the_window(runs: Found) -> None:
    assert runs.of("others", "first_offset", "earlier_offset", "seconds") == [(9, 6, 59.0)]


def test_a_run_may_reach_across_batches_and_far_ahead(runs: Found) -> None:
    assert runs.of("far", "first_offset", "repeated") == [(FAR + 1, 3)]


def test_a_run_across_the_boundary_of_two_audits_is_reported_by_the_second(runs: Found) -> None:
    assert runs.of("across", "repeated") == [(4,)]
    assert runs.of("before", "repeated") == []


def test_a_repeated_key_is_found_in_whatever_partition(keys: Found) -> None:
    names = ("duplicate_key", "repeated", "first_partition", "first_offset", "last_offset")
    assert keys.of("keys", *names) == [("a", 2, 0, 0, 9)]
    assert keys.of("other-keys", *names) == []


def test_a_record_that_several_findings_name_is_one_repeated_record(given: Engine) -> None:
    keys = Found(given, later_of_a_key("")).all("topic", "partition", "offset")
    assert keys == [("keys", 0, 9), ("keys", 1, 7), ("new-keys", 0, 5)]
    schema = pa.schema(
        {"topic": pa.string(), "partition": pa.int32(), "first_offset": pa.int64(), "last_offset": pa.int64()}
    )
    given.put("audit_repeats", table(schema, [("again", 0, 5, 8), ("again", 0, 8, 9), ("keys", 0, 8, 20)]))
    offsets = Found(given, within_offsets("audit_repeats")).all("topic", "offset")
    assert offsets == [("again", 5), ("again", 6), ("again", 7), ("again", 8), ("again", 9), ("keys", 9)]


def test_of_keys_only_what_is_new_is_reported(keys: Found) -> None:
    assert keys.of("new-keys", "duplicate_key") == [("new",)]


def test_a_digest_tells_null_from_nothing_and_key_from_value(engine: Engine) -> None:
    pairs = [(b"a", b"b"), (b"a", b"b"), (b"ab", b""), (None, b"ab"), (b"ab", None), (b"", b"ab")]
    engine.put(
        "audit_pairs", table(PLAIN, [(key, value, "orders", 0, at, None) for at, (key, value) in enumerate(pairs)])
    )
    rows = Found(engine, digest("upper(string(key))", "audit_pairs")).all("offset", "content", "duplicate_key")
    assert rows[0][1] == rows[1][1]
    assert len({content for _, content, _ in rows}) == len(pairs) - 1
    assert [key for _, _, key in rows] == ["A", "A", "AB", None, "AB", ""]
    assert [key for (key,) in Found(engine, digest(" Value ", "audit_pairs")).all("duplicate_key")] == [
        "",
        "ab",
        "ab",
        "b",
        "b",
        None,
    ]
    assert {key for (key,) in Found(engine, digest(None, "audit_pairs")).all("duplicate_key")} == {None}


def test_which_keys_need_no_spark() -> None:
    assert [plain_key(key) for key in ("key", "VALUE", "string( key )")] == ["key", "value", "key"]
    assert [plain_key(key) for key in ("upper(string(key))", "keys", "string(key) || 'a'", "")] == [None] * 4

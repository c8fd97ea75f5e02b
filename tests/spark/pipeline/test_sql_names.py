import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.spark.pipeline.sql_names import tables_read


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT 1", ()),
        ("select a from b", ("b",)),
        ("SELECT * FROM a, b AS x, c JOIN d ON a.i = d.i LEFT JOIN e USING (i, j)", ("a", "b", "c", "d", "e")),
        ("SELECT * FROM (SELECT * FROM a) JOIN (SELECT x FROM b)", ("a", "b")),
        ("SELECT EXTRACT(YEAR FROM at), trim(BOTH 'x' FROM c) FROM a WHERE c IS DISTINCT FROM d", ("a",)),
        ("WITH n AS (SELECT * FROM a), m (i, j) AS (SELECT 1, 2 FROM n) SELECT * FROM n JOIN m JOIN b", ("a", "b")),
        ("SELECT 'FROM x' -- FROM y\n, \"it''s FROM z\" /* FROM w */ FROM a", ("a",)),
        ("SELECT * FROM `odd name` JOIN lake.shops JOIN `x`.`y`", ("odd name",)),
        ("SELECT * FROM range(5), VALUES (1) AS t", ()),
        ("SELECT * FROM a LATERAL VIEW explode(m) t AS k, v WHERE k IN (SELECT k FROM b)", ("a", "b")),
        ("FROM a |> WHERE x > 1 |> JOIN b USING (i)", ("a", "b")),
        ("SELECT * FROM a UNION ALL SELECT *, 1 FROM b GROUP BY c, d", ("a", "b")),
        ("SELECT from_json(v, 's') FROM A a ORDER BY x, y", ("A",)),
    ],
)
def test_tables(sql: str, tables: tuple[str, ...]) -> None:
    assert tables_read(sql) == tables


@given(st.text(st.sampled_from("SELECT FROM JOIN WITH AS a,b()'`.;-/*\n")))
def test_no_text_is_too_odd(sql: str) -> None:
    tables_read(sql)

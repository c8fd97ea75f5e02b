from pathlib import Path

import pytest

from tests.support.java import jars
from tools import import_schema


@pytest.mark.java
def test_the_tables_are_what_the_released_jars_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_schema, "SCHEMA", tmp_path)
    monkeypatch.setattr(
        import_schema, "fetch_jars", lambda version, _: jars(f"org.apache.kafka:kafka-clients:{version}")
    )
    schema = Path(import_schema.__file__).parent.parent / "schema"
    import_schema.main()
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in schema.glob("*.txt")}


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

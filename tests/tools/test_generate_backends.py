"""The tables of docs/backends.md: one row for each known difference, and the text above them stays."""

from tests.contract.backends import DIFFERENCES
from tools.generate_backends import page


def test_each_difference_is_a_row_and_the_text_above_stays() -> None:
    first = page("Text.\n<!-- the rest is generated from tests/contract/backends.yaml -->\nold")
    assert first.startswith("Text.\n<!-- the rest")
    assert "\nold" not in first
    for rows in DIFFERENCES.values():
        for row in rows:
            assert f"| {row['lacks']} | {row['kproxy']} |" in first
    assert page(first) == first

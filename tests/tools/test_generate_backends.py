"""The tables of brokers' differences: one row for each known one, and the text above them stays."""

import pytest

from tests.contract.backends import DIFFERENCES
from tools.generate_backends import PAGES, main, page


@pytest.mark.parametrize("backends", PAGES.values(), ids=" ".join)
def test_each_difference_is_a_row_and_the_text_above_stays(backends: tuple[str, ...]) -> None:
    first = page("Text.\n<!-- the rest is generated from tests/contract/backends.yaml -->\nold", backends)
    assert first.startswith("Text.\n<!-- the rest")
    assert "\nold" not in first
    for backend in backends:
        for row in DIFFERENCES[backend]:
            assert f"| {row['lacks']} | {row['kproxy']} |" in first
    assert page(first, backends) == first


def test_each_backend_is_on_one_page_and_the_pages_are_up_to_date() -> None:
    assert sorted(backend for backends in PAGES.values() for backend in backends) == sorted(DIFFERENCES)
    assert main(["--check"]) == 0

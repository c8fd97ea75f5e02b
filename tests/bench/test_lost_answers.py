"""The count of what lost responses do, with the fewest records: without kproxy there are duplicates, with it none."""

import pytest

from bench.lost_answers import lost_answers

pytestmark = [pytest.mark.kafka, pytest.mark.java]


def test_each_kind_of_damage_is_counted_directly_and_through_kproxy() -> None:
    figures = {figure.case: figure for figure in lost_answers(1)}
    assert len(figures) == 8
    direct = sum(figure.direct or 0 for case, figure in figures.items() if case.endswith("duplicates"))
    assert direct > 0
    assert {case: figure.kproxy for case, figure in figures.items() if not figure.met} == {}

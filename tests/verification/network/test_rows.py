from typing import cast

from verification.network.outcome import Outcome
from verification.network.rows import COLUMNS, Row, run_case
from verification.network.site import Site

SITE = cast("Site", None)


def test_a_good_case() -> None:
    row = run_case("some", lambda _: Outcome(3, 3, 3, 0, 0), SITE)
    assert (row.problems, row.verdict) == ((), "good")
    assert len(row.cells()) == len(COLUMNS)
    assert row.fields()["in the log"] == "3"


def test_a_case_that_fails_or_does_not_reach_its_end() -> None:
    def stuck(_: Site) -> Outcome:
        raise TimeoutError("too long")

    assert run_case("some", lambda _: Outcome(3, 3, 2, 1, 0), SITE).verdict == "1 lost"
    row = run_case("some", stuck, SITE)
    assert row.verdict == "TimeoutError: too long"
    assert row.cells()[:-1] == ["-"] * 5


def test_seconds_are_in_the_table() -> None:
    assert Row("some", 1.26, None, "x").cells()[-1] == "1.3"

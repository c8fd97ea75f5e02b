"""Of equal records each is written, and none twice, whatever is late, refused, lost or sent again in a short run."""

from itertools import product
from unittest.mock import patch

import pytest

from kproxy.dedup.retry_rules import Rules
from tests.proxy.equal_runs import flaw, runs

pytestmark = pytest.mark.long

_STEPS = 5


@pytest.mark.parametrize(("depth", "timed"), list(product((1, 2, 3), (False, True))))
def test_no_short_run_merges_equal_records_or_writes_one_twice(depth: int, timed: bool) -> None:
    found = {run: flaw(run, depth, timed=timed) for run in runs(_STEPS, depth, timed=timed, begin="a")}
    assert {run: how for run, how in found.items() if how} == {}


def test_what_was_read_before_an_equal_one_was_due_is_not_its_retry() -> None:
    assert flaw("abalw", 3, timed=False) is None
    with patch.object(Rules, "sent_too_soon", lambda *_: False):
        assert flaw("abalw", 3, timed=False) == "of 2 a 1 were written, answered [0, 0]"

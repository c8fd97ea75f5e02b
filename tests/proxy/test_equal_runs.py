"""Of equal records each is written, and none twice, whatever is late, refused, lost or sent again in a short run."""

from itertools import product
from unittest.mock import patch

import pytest

from kproxy.dedup.digest import Digest
from kproxy.dedup.retry_rules import Rules
from kproxy.dedup.unconfirmed import UnconfirmedBatch
from tests.proxy.equal_runs import flaw, runs

pytestmark = pytest.mark.long

_STEPS = 5


@pytest.mark.parametrize(("depth", "timed"), list(product((1, 2, 3), (False, True))))
def test_no_short_run_merges_equal_records_or_writes_one_twice(depth: int, timed: bool) -> None:
    found = {run: flaw(run, depth, timed=timed) for run in runs(_STEPS, depth, timed=timed, begin="a")}
    assert {run: how for run, how in found.items() if how} == {}


def test_a_late_response_on_a_connection_that_lives_was_read() -> None:
    assert flaw("alwa", 1, timed=False) is None
    agree = Rules.times_agree

    def late_or_not(rules: Rules, entry: UnconfirmedBatch, ours: Digest, theirs: Digest, now: float) -> bool:
        entry.late_here = False
        return agree(rules, entry, ours, theirs, now)

    with patch.object(Rules, "times_agree", late_or_not):
        assert flaw("alwa", 1, timed=False) == "of 2 a 1 were written, answered [0, 0]"

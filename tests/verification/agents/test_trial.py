"""One short trial with a real agent, a real Kafka and a relay that loses responses."""

from pathlib import Path

import pytest

from verification.agents.debian import Rsyslog
from verification.agents.trial import Trial, run

pytestmark = [pytest.mark.kafka, pytest.mark.java]


def test_rsyslog_writes_each_line_once_through_kproxy_though_acknowledgements_are_lost(tmp_path: Path) -> None:
    """Only ``make agents`` shows that direct writes leave copies: how many is a matter of chance."""
    found = run(Trial(Rsyslog, "killed", 2_000, 0.3), tmp_path)
    assert (found.missing, found.copies) == (0, 0)

"""The log during a run."""

import pytest
import structlog

from verification.simulation import invariants
from verification.simulation.history import History
from verification.simulation.logs import watched_logs


def test_only_a_bug_that_is_reported_counts(capfd: pytest.CaptureFixture[str]) -> None:
    log, history = structlog.get_logger("test"), History()
    with watched_logs(history):
        log.warning("something")
        log.error("something worse")
        assert history.broken is None
        try:
            raise ValueError("a bug")
        except ValueError:
            log.exception("connection failed")
    assert history.broken is not None
    assert history.broken[0] == invariants.FAILED
    assert "a bug" in history.broken[1]
    assert capfd.readouterr().out == ""

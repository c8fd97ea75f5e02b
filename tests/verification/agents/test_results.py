"""What ``make agents`` found is kept for the docs: of whole trials, and of programs that are still run."""

from dataclasses import replace
from pathlib import Path

from verification.agents.debian import Kcat, Rsyslog
from verification.agents.results import add, is_whole, missing, read
from verification.agents.trial import Found, Trial

TRIAL = Trial(Kcat, "killed", Kcat.lines, Kcat.share)
FOUND = Found(lines=50_000, missing=0, copies=3, dropped=9, seconds=20.0)


def test_the_last_trial_of_each_kind_counts(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text('{"gone": {}}')
    add(TRIAL, FOUND, "2026-01-02", "1.7", "4.4.0", path)
    add(TRIAL._replace(kind="direct"), FOUND, "2026-01-03", "1.7", "4.4.0", path)
    add(TRIAL, replace(FOUND, copies=0), "2026-01-04", "1.8", "4.4.0", path)
    found = read(path)
    assert list(found) == ["kcat"]
    assert {kind: (row.date, row.version, row.copies) for kind, row in found["kcat"].items()} == {
        "direct": ("2026-01-03", "1.7", 3),
        "killed": ("2026-01-04", "1.8", 0),
    }


def test_only_whole_trials_are_for_the_docs() -> None:
    assert is_whole(TRIAL)
    assert not is_whole(TRIAL._replace(lines=100))
    assert not is_whole(TRIAL._replace(share=0.0))


def test_a_trial_that_was_not_run_is_named_unless_no_trial_can_show_it() -> None:
    left = missing({})
    assert "rsyslog hand-over" in left
    assert "rsyslog direct" in left
    assert "mirrormaker1 direct" not in left
    results = read()
    assert missing(results) == []
    assert Rsyslog.name in results

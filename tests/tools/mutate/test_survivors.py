"""A survivor needs a reason, and a reason a survivor."""

from pathlib import Path

import pytest

from tools.mutate.survivors import complaints, read


def test_survivors_without_a_reason_and_reasons_without_a_survivor_are_wrong() -> None:
    known = {"m.py": {"listed": "equivalent", "killed now": "equivalent", "gone": "equivalent"}}
    tried = {"m.py": {"listed": "survived", "new": "survived", "unseen": "not reached", "killed now": "killed"}}
    found = complaints(known, tried, {"m.py": {"listed", "new", "unseen", "killed now", "fine"}})
    assert [line.split(": ")[1] for line in found] == ["new", "unseen", "killed now", "gone"]


def test_each_has_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "survivors.yaml"
    path.write_text("m.py:\n  'f: 1 becomes 2':\n")
    with pytest.raises(ValueError, match="has no reason"):
        read(path)

"""What a client received is known, or in doubt: runs made by hand hold."""

import pytest

from verification.simulation.evidence_scripts import BY_ITEM, Script
from verification.simulation.world import run

SCRIPTS = [script for scripts in BY_ITEM.values() for script in scripts]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_it_holds(script: Script) -> None:
    for seed in range(5):
        assert run(script(seed)).broken is None

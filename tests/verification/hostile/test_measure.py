from dataclasses import replace

import pytest

from verification.hostile.measure import Row

MIB = 1 << 20
GOOD = Row("an attack", 1.0, (60 * MIB, 65 * MIB), (14, 20), 0.1, "1 closed", 0, True)


def test_an_attack_that_kproxy_bore_has_no_faults() -> None:
    assert GOOD.faults(1.5) == []
    assert replace(GOOD, stall=None).faults(1.5) == []


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (replace(GOOD, memory=(60 * MIB, 67 * MIB)), "memory grew by 7 MiB"),
        (replace(GOOD, files=(14, 30)), "16 files left open"),
        (replace(GOOD, stall=2.0), "the loop stood still for 2.0 s"),
        (replace(GOOD, tracebacks=2), "2 tracebacks"),
        (replace(GOOD, alive=False), "kproxy has ended"),
    ],
)
def test_what_is_too_much_is_a_fault(row: Row, fault: str) -> None:
    assert row.faults(1.5) == [fault]

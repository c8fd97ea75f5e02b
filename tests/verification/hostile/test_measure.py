from dataclasses import replace

import pytest

from verification.hostile.measure import Limits, Row

MIB = 1 << 20
GOOD = Row("an attack", 1.0, (60 * MIB, 65 * MIB), 20 * MIB, (14, 20), 0.05, 3.0, "1 closed", 0, True)
ANY = Limits(0.1)


def test_an_attack_that_kproxy_bore_has_no_faults() -> None:
    assert GOOD.faults(ANY) == []
    assert GOOD.faults(Limits(0.1, rise=20 * MIB, wait=3.0)) == []
    assert replace(GOOD, wait=None).faults(Limits(0.1, wait=1.0)) == []


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (replace(GOOD, memory=(60 * MIB, 67 * MIB)), "memory grew by 7 MiB"),
        (replace(GOOD, files=(14, 30)), "16 files left open"),
        (replace(GOOD, stretch=0.2), "the loop worked for 200 ms without a break"),
        (replace(GOOD, tracebacks=2), "2 tracebacks"),
        (replace(GOOD, alive=False), "kproxy has ended"),
    ],
)
def test_what_is_too_much_is_a_fault(row: Row, fault: str) -> None:
    assert row.faults(ANY) == [fault]


def test_a_setup_may_limit_what_its_attacks_cost() -> None:
    assert GOOD.faults(Limits(0.1, rise=19 * MIB)) == ["memory rose by 20 MiB meanwhile"]
    assert GOOD.faults(Limits(0.1, wait=2.9)) == ["an honest client waited for 3.0 s"]

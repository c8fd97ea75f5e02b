"""A small fleet, as ``python -m verification.fleet_scale`` runs a large one."""

from verification.fleet_scale.__main__ import missed_bars, report, run


def test_a_fleet_is_idle_decides_loses_an_instance_and_is_restarted_without_an_error_at_a_client() -> None:
    found = run(instances=12, idle_s=130.0, decisions=1, clients=3)
    assert list(missed_bars(found)) == []
    assert len(found.visible) == 12
    assert found.acknowledged >= 3
    assert len(list(report(found))) == 14

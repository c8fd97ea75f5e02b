"""The list of what the fake leaves out names each area once."""

from kproxy.testing.fake_broker.left_out import NOT_MODELLED


def test_every_limit_begins_with_the_area_it_is_about_and_no_area_comes_twice() -> None:
    areas = [limit.partition(":")[0].partition(",")[0] for limit in NOT_MODELLED]
    assert all(areas)
    assert len(set(areas)) == len(areas)
    assert {"transactions", "replication", "groups", "storage"} <= set(areas)

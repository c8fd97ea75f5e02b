"""The model of fences: its rules hold, each replaced rule fails, and a clean end spares markers at all."""

import pytest

from verification.models.fences import FLAWS, Copy, Known, Rules, World, append, explore


@pytest.mark.parametrize(("programs", "kills"), [(("ab",), 2), (("a", "b"), 1)], ids=["a client", "two clients"])
def test_the_rules_hold_and_spare_markers(programs: tuple[str, ...], kills: int) -> None:
    found = explore(Rules(), programs, kills=kills, ends=1)
    assert found.trace is None
    assert found.spared
    assert found.states > 1000


@pytest.mark.parametrize("rules", FLAWS, ids=str)
def test_each_replaced_rule_writes_a_record_twice(rules: Rules) -> None:
    found = explore(rules)
    assert found.trace is not None
    assert found.trace.invariant == "twice"
    assert "kproxy is killed and started" in found.trace.steps


def test_the_broker_takes_a_copy_once_and_refuses_what_is_fenced() -> None:
    first, second = Copy(1, 0, 0, "a"), Copy(1, 0, 1, "b")
    taken, world = append(World(), first)
    assert taken
    assert append(world, first) == (True, world)
    assert append(world, Copy(1, 0, 5, "c")) == (False, world)
    taken, world = append(world, second)
    assert [payload for payload, _ in world.log] == ["a", "b"]
    fenced = world._replace(broker=((1, Known(1, ())),))
    assert append(fenced, first) == (False, fenced)
    assert append(fenced, Copy(1, 1, 0, "c"))[0]


def test_a_producer_id_that_the_broker_does_not_know_begins_anywhere() -> None:
    taken, world = append(World(), Copy(1, 0, 7, "a"))
    assert taken
    assert world.log == (("a", 1),)

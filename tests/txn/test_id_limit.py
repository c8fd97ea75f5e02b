"""How many transactional ids a principal may have."""

from kproxy.txn.id_limit import IdLimit


def test_a_principal_has_so_many_ids_and_another_one_has_its_own() -> None:
    limit = IdLimit(2)
    assert [limit.admits(name, "User:a", 0.0, is_known=False) for name in ("1", "2", "3", "2")] == [
        True,
        True,
        False,
        True,
    ]
    assert limit.admits("4", "User:b", 0.0, is_known=False)


def test_what_exists_is_served_and_counts_for_the_one_that_asked_last() -> None:
    limit = IdLimit(1)
    assert limit.admits("1", "User:a", 0.0, is_known=False)
    assert limit.admits("2", "User:a", 0.0, is_known=True)
    assert not limit.admits("3", "User:a", 0.0, is_known=False)
    for name in ("1", "2"):
        assert limit.admits(name, "User:b", 0.0, is_known=True)
    assert limit.admits("3", "User:a", 0.0, is_known=False)
    assert not limit.admits("4", "User:b", 0.0, is_known=False)


def test_an_id_that_has_expired_makes_room_and_one_that_is_about_to_be_given_does_not() -> None:
    limit = IdLimit(2)
    for name in ("1", "2"):
        assert limit.admits(name, "User:a", 0.0, is_known=False)
    limit.sweep(lambda name: False, 60.0)
    assert not limit.admits("3", "User:a", 60.0, is_known=False), "the log may not have it yet"
    limit.sweep(lambda name: name == "1", 1000.0)
    assert limit.admits("3", "User:a", 1000.0, is_known=False)
    assert not limit.admits("4", "User:a", 1000.0, is_known=False)
    limit.forget("3")
    limit.forget("unknown")
    assert limit.admits("4", "User:a", 1000.0, is_known=False)


def test_a_long_id_counts_as_several() -> None:
    limit = IdLimit(3)
    assert not limit.admits("x" * 768, "User:a", 0.0, is_known=False)
    assert limit.admits("x" * 256, "User:a", 0.0, is_known=False)
    assert not limit.admits("y" * 256, "User:a", 0.0, is_known=False)
    assert limit.admits("y" * 255, "User:a", 0.0, is_known=False)


def test_a_refusal_is_new_once_until_there_was_room_again() -> None:
    limit = IdLimit(1)
    assert limit.admits("1", "User:a", 0.0, is_known=False)
    assert [limit.is_first_refusal(name) for name in ("User:a", "User:a", "User:b")] == [True, False, True]
    limit.sweep(lambda name: True, 1000.0)
    assert not limit.is_first_refusal("User:a")
    limit.sweep(lambda name: False, 1000.0)
    assert limit.is_first_refusal("User:a")

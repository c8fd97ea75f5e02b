"""What producers claim."""

import trio.testing

from kproxy.txn.ids import Producer
from verification.simulation.transactions.history import Input, TransactionHistory


def test_values_are_unique_and_known_by_their_transaction() -> None:
    history = TransactionHistory()
    claimed = history.open("0.0.0", 0, "id")
    assert history.values(claimed, 1, 2, late=False) == [b"0.0.0:1.0", b"0.0.0:1.1"]
    assert history.values(claimed, 1, 1, late=True) == [b"0.0.0:1.2"]
    assert claimed.values == {1: [b"0.0.0:1.0", b"0.0.0:1.1", b"0.0.0:1.2"]}
    assert claimed.zombies == {b"0.0.0:1.2"}
    assert history.by_value[b"0.0.0:1.1"] is claimed


async def test_acknowledgements_say_where_each_record_is(autojump_clock: trio.testing.MockClock) -> None:
    history = TransactionHistory()
    claimed = history.open("0.0.0", 0, "id")
    history.acknowledges(claimed, 2, [b"a", b"b"], 7)
    assert history.acks == [(2, 7, b"a"), (2, 8, b"b")]
    assert history.acknowledged == 2


def test_what_was_stable_when_a_commit_was_first_asked_for_is_kept() -> None:
    history = TransactionHistory()
    claimed = history.open("0.0.0", 0, "id")
    history.stable[0] = 4
    history.asks(claimed)
    history.stable[0] = 9
    history.asks(claimed)
    assert claimed.asked
    assert claimed.stable_before == {0: 4}


def test_a_producer_is_fenced_once_a_newer_one_was_granted_the_id() -> None:
    history = TransactionHistory()
    for producer in (Producer(5, 0), Producer(5, 2)):
        history.gives("id", producer)
    assert history.is_fenced("id", Producer(5, 1))
    assert not history.is_fenced("id", Producer(5, 2))
    assert not history.is_fenced("id", Producer(6, 0))
    assert not history.is_fenced("other", Producer(5, 0))


def test_a_request_after_a_producer_received_its_identity_replaces_it_whatever_its_producer_id() -> None:
    history = TransactionHistory()
    history.gives("id", Producer(5, 9), asked=1.0)
    history.gives("id", Producer(6, 0), asked=3.0)
    assert history.is_fenced("id", Producer(5, 9), told=2.0)
    assert not history.is_fenced("id", Producer(5, 9), told=3.5)
    assert not history.is_fenced("id", Producer(6, 0), told=4.0)


def test_an_identity_is_of_the_process_that_received_it_first() -> None:
    history = TransactionHistory()
    assert history.holder(Producer(5, 1), "a") == "a"
    assert history.holder(Producer(5, 1), "b") == "a"
    assert history.holder(Producer(5, 2), "b") == "b"


def test_a_group_has_come_as_far_as_was_reported() -> None:
    history = TransactionHistory()
    first, second, third = (history.open(str(n), 0, "id") for n in range(3))
    for claimed in (first, second, third):
        claimed.input = history.next_input("g")
    assert third.input == Input("g", 3)
    assert history.least_position("g") == 0
    first.told, second.told, third.told = True, True, False
    assert history.least_position("g") == 2
    assert history.least_position("other") == 0
    assert history.of_input(Input("g", 2)) == [second]

"""Which requests of a transactional client are late."""

import pytest

from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec.messages import ErrorCode
from kproxy.txn.late_requests import COORDINATOR, AddedGroups, NewestConnections
from kproxy.txn.txn_error import TxnError


def offsets(group: str, *partitions: int) -> TransactionOffsets:
    rows = [TransactionOffsetsPartition(index, 7) for index in partitions]
    return TransactionOffsets(group_id=group, topics=[TransactionOffsetsTopic("t", rows)])


class TestNewestConnections:
    @pytest.mark.parametrize("coordinator", [COORDINATOR, "g"])
    def test_an_older_connection_than_the_newest_is_refused(self, coordinator: str) -> None:
        used = NewestConnections()
        for connection in (3, 3, 5, 5):
            used.admit(coordinator, connection)
        with pytest.raises(TxnError, match="NETWORK_EXCEPTION"):
            used.admit(coordinator, 4)
        with pytest.raises(TxnError, match="NETWORK_EXCEPTION"):
            used.admit(coordinator, 4)  # the refused one did not become the newest
        used.admit(coordinator, 5)
        assert used.is_newest(coordinator, 5)
        assert not used.is_newest(coordinator, 4)

    def test_what_came_before_the_client_came_back_is_refused_wherever_it_goes(self) -> None:
        used = NewestConnections()
        used.refuse_older(4)
        for coordinator in (COORDINATOR, "g"):
            with pytest.raises(TxnError, match="NETWORK_EXCEPTION"):
                used.admit(coordinator, 3)
            used.admit(coordinator, 4)
        with pytest.raises(TxnError, match="NETWORK_EXCEPTION"):
            used.check(3)
        used.check(0)  # kproxy's own
        used.clear()
        used.check(3)

    def test_each_coordinator_has_connections_of_its_own(self) -> None:
        used = NewestConnections()
        used.admit(COORDINATOR, 5)
        used.admit("g", 3)
        used.admit("h", 4)
        used.admit("g", 3)

    def test_a_new_identity_may_use_any_connection(self) -> None:
        used = NewestConnections()
        used.admit(COORDINATOR, 5)
        used.clear()
        assert not used.is_newest(COORDINATOR, 5)
        used.admit(COORDINATOR, 4)

    def test_only_the_groups_that_were_used_least_recently_are_forgotten(self) -> None:
        used = NewestConnections()
        used.admit(COORDINATOR, 9)
        used.admit("used", 9)
        used.admit("left", 9)
        for number in range(999):
            used.admit(f"g{number}", 9)
            used.admit("used", 9)
        for name in (COORDINATOR, "used"):
            with pytest.raises(TxnError, match="NETWORK_EXCEPTION"):
                used.admit(name, 8)
        used.admit("left", 8)

    def test_a_thousand_groups_are_remembered_beside_the_transactions_coordinator(self) -> None:
        used = NewestConnections()
        used.admit(COORDINATOR, 9)
        for number in range(1_000):
            used.admit(f"g{number}", 9)
        with pytest.raises(TxnError, match="NETWORK_EXCEPTION"):
            used.admit("g0", 8)
        used.admit("one more", 9)
        used.admit("g1", 8)


class TestAddedGroups:
    def test_a_group_is_in_the_transaction_once_it_was_added(self) -> None:
        groups = AddedGroups()
        assert "g" not in groups
        groups.add("g")
        assert "g" in groups
        assert "h" not in groups

    def test_what_is_remembered_is_bounded_and_what_is_known_already_costs_nothing(self) -> None:
        groups = AddedGroups()
        name = "g" * 1_000
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            for number in range(1_000):
                groups.add(f"{number}{name}")
        assert f"800{name}" in groups
        assert f"900{name}" not in groups
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            groups.add(f"900{name}")
        groups.add(f"800{name}")

    def test_partitions_that_are_remembered_are_bounded_too(self) -> None:
        groups = AddedGroups()
        for _ in range(3):
            assert groups.receive(offsets("g", *range(4_000)), 3) is None
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            groups.receive(offsets("h", *range(4_000)), 3)
        assert groups.receive(offsets("g", *range(4_000)), 4) is None

    def test_offsets_over_one_connection_are_all_one_clients(self) -> None:
        groups = AddedGroups()
        assert groups.receive(offsets("g", 0, 1), 3) is None
        assert groups.receive(offsets("g", 2), 3) is None

    def test_a_newer_connection_may_replace_all_that_came_before(self) -> None:
        groups = AddedGroups()
        assert groups.receive(offsets("g", 0, 1), 3) is None
        assert groups.receive(offsets("g", 0, 1, 2), 4) is None
        assert groups.receive(offsets("g", 3), 4) is None  # nothing of the older connection is left

    def test_what_a_newer_connection_does_not_replace_dooms_the_transaction(self) -> None:
        groups = AddedGroups()
        assert groups.receive(offsets("g", 0, 1), 3) is None
        error = groups.receive(offsets("g", 0), 4)
        assert error is not None
        assert error.error_code is ErrorCode.TRANSACTION_ABORTABLE

    def test_groups_have_coordinators_of_their_own(self) -> None:
        groups = AddedGroups()
        assert groups.receive(offsets("g", 0), 3) is None
        assert groups.receive(offsets("h", 1), 4) is None
        assert groups.receive(offsets("g", 0), 5) is None

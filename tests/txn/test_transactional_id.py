"""Which requests of a transactional id are admitted, what dooms, what a repeated or late request receives."""

import pytest

from kproxy.codec._generated.transaction_offsets import (
    TransactionOffsets,
    TransactionOffsetsPartition,
    TransactionOffsetsTopic,
)
from kproxy.codec.messages import ErrorCode
from kproxy.errors import LocalProtocolError
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import Producer
from kproxy.txn.late_requests import COORDINATOR, AddedGroups
from kproxy.txn.repeated_ends import Ended
from kproxy.txn.requests import IdHolder, TxnRequest
from kproxy.txn.states import TransactionEvent, TransactionState
from kproxy.txn.transactional_id import TransactionalId
from kproxy.txn.txn_error import TxnError
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import ASKED, DecidedEpoch
from tests.txn.bodies import producer

CLIENT = Producer(7, 3)
NEXT = Producer(7, 4)
COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}
ENDS = pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])


class Id(TransactionalId):
    """Of a client; counts the requests of producers that were replaced."""

    def __init__(self, client: Producer = CLIENT) -> None:
        super().__init__(self._count)
        self.replaced_ones = 0
        self.client = client

    def _count(self) -> None:
        self.replaced_ones += 1

    def ended(self, *, committed: bool) -> "Id":
        """After one transaction."""
        self.restore(committed=committed)
        return self


def by(client: Producer = CLIENT, connection: int = 1) -> TxnRequest:
    return TxnRequest("id", client, connection, "client")


class TestWhichRequestsAreAdmitted:
    @pytest.mark.parametrize(
        ("client", "error"),
        [
            (Producer(8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (Producer(6, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (Producer(7, 4), ErrorCode.INVALID_PRODUCER_EPOCH),
            (Producer(7, 2), ErrorCode.PRODUCER_FENCED),
        ],
    )
    def test_those_of_the_identity_that_the_client_has(self, client: Producer, error: ErrorCode) -> None:
        known = Id()
        known.admit(by(), COORDINATOR)
        with pytest.raises(TxnError) as raised:
            known.admit(by(client), COORDINATOR)
        assert raised.value.error_code is error
        assert known.replaced_ones == (error is ErrorCode.PRODUCER_FENCED)

    def test_none_after_another_has_taken_the_id_elsewhere(self) -> None:
        known = Id()
        with pytest.raises(TxnError, match="PRODUCER_FENCED"):
            known.admit(by(), COORDINATOR, NEXT)
        known.admit(by(), COORDINATOR, Producer(9, 0))  # its own records will show that
        known.is_fenced = True
        with pytest.raises(TxnError, match="PRODUCER_FENCED"):
            known.admit(by(), None)
        known.initialize()
        known.admit(by(), None)

    def test_none_before_a_client_has_received_the_id(self) -> None:
        """Nor that of a client without an identity: somebody else is to receive the id just now."""
        known = Id(NOBODY)
        assert known.is_unknown
        for client in (CLIENT, NOBODY):
            with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS"):
                known.admit(by(client), COORDINATOR, CLIENT)
        known.client = CLIENT
        assert not known.is_unknown
        known.admit(by(), COORDINATOR)

    def test_none_where_somebody_has_only_decided_for_the_client(self) -> None:
        known = Id()
        known.acts_for_others = True
        with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS"):
            known.admit(by(), COORDINATOR)
        known.initialize()
        known.admit(by(), COORDINATOR)

    @pytest.mark.parametrize("ended", [False, True])
    def test_which_end_elsewhere_is_that_of_the_client_that_asks(self, ended: bool) -> None:
        """A claim of another instance has aborted what is open here, or not yet."""
        view, known = IdView("id"), Id()
        part = producer(1, 0)
        view.client, known.state = CLIENT, TransactionState.ONGOING
        view.aborted.update([part] if ended else [])
        assert known.is_ended_elsewhere(CLIENT, view, part) is ended
        assert not known.is_ended_elsewhere(CLIENT, view, None)
        assert not known.is_ended_elsewhere(NEXT, view, part)
        known.state = TransactionState.PREPARE_COMMIT
        assert not known.is_ended_elsewhere(CLIENT, view, part)
        view.client = NEXT
        assert known.is_ended_elsewhere(NEXT, view, None), "an identity that was given elsewhere"
        assert not known.is_ended_elsewhere(CLIENT, view, None)

    def test_a_client_without_the_response_to_its_end_elsewhere_has_the_id(self) -> None:
        known, view = Id(NEXT), IdView("id")
        view.client, at = Producer(7, 5), LogPosition(0, 0)
        view.last = DecidedEpoch(producer(1, 0), CLIENT, view.client, True, ASKED, by_claim=False, at=at)
        assert known.is_ended_elsewhere(CLIENT, view, None)
        assert not known.is_ended_elsewhere(NEXT, view, None)

    def test_none_over_an_older_connection_to_the_same_coordinator(self) -> None:
        known = Id()
        known.admit(by(connection=2), COORDINATOR)
        with pytest.raises(TxnError, match="NETWORK_EXCEPTION"):
            known.admit(by(connection=1), COORDINATOR)
        known.admit(by(connection=1), "group")
        for connection in (4, 3):
            known.admit(by(connection=connection), None)
        known.initialize()
        known.admit(by(connection=1), COORDINATOR)

    def test_the_parties_are_the_connections_of_the_open_transaction(self) -> None:
        known = Id()
        assert known.begin()
        assert known.parties() == set()
        known.drop()
        known.admit(by(connection=1), None)
        assert known.parties() == ()
        assert known.begin()
        known.admit(by(connection=2), COORDINATOR)
        with pytest.raises(TxnError):
            known.admit(by(connection=1), COORDINATOR)
        assert known.parties() == {1, 2}
        assert known.drop()
        known.admit(by(connection=3), None)
        known.begin()
        assert known.parties() == {3}

    def test_a_client_has_left_when_its_newest_connection_has_ended(self) -> None:
        known = Id()
        assert not known.is_left
        known.admit(by(connection=1), COORDINATOR)
        known.admit(by(connection=2), COORDINATOR)
        known.closed(1)
        assert not known.is_left
        known.closed(2)
        assert known.is_left
        known.admit(by(connection=3), None)
        assert known.is_left
        known.admit(by(connection=3), COORDINATOR)
        assert not known.is_left
        known.closed(3)
        known.initialize()
        assert not known.is_left


class TestWhatATransactionTakes:
    @ENDS
    def test_nothing_while_it_is_being_decided(self, committed: bool) -> None:
        known = Id()
        known.refuse_growth()
        known.begin()
        known.refuse_growth()
        known.ask_to_end(committed=committed)
        with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS"):
            known.refuse_growth()
        assert known.is_open
        assert known.drop()
        known.refuse_growth()

    def test_nothing_once_it_can_only_be_aborted(self) -> None:
        known = Id()
        known.begin()
        known.doom_unwritten("why")
        told = known.doomed
        known.doom_unwritten("why")
        assert known.doomed is told
        for asked in (known.refuse_growth, lambda: known.begin_to_end(committed=True)):
            with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
                asked()
        known.begin_to_end(committed=False)
        known.refuse_growth()

    def test_offsets_that_may_be_late_doom_it_unless_they_are_replaced(self) -> None:
        known, added = Id(), AddedGroups()
        known.begin()
        known.take_offsets(added, offsets(0, 1), 1)
        known.take_offsets(added, offsets(0, 1), 2)
        with pytest.raises(TxnError, match="TRANSACTION_ABORTABLE"):
            known.take_offsets(added, offsets(0), 3)
        assert known.doomed is not None

    def test_a_new_producer_begins_with_nothing(self) -> None:
        known = Id()
        known.begin()
        known.doom("it took too long")
        known.drop()
        known.initialize()
        assert (known.doomed, known.state, known.parties()) == (None, TransactionState.EMPTY, ())


def offsets(*indexes: int) -> TransactionOffsets:
    rows = [TransactionOffsetsPartition(index, 5) for index in indexes]
    return TransactionOffsets(group_id="g", topics=[TransactionOffsetsTopic("t", rows)])


class TestEnds:
    @ENDS
    def test_the_same_again_is_a_success_and_the_other_one_is_refused(self, committed: bool) -> None:
        known = Id().ended(committed=committed)
        known.end_nothing(committed=committed)
        with pytest.raises(TxnError, match="INVALID_TXN_STATE"):
            known.end_nothing(committed=not committed)

    @ENDS
    def test_an_empty_transaction_ends_either_way(self, committed: bool) -> None:
        Id().end_nothing(committed=committed)

    @ENDS
    def test_one_that_has_raised_the_epoch_is_answered_again(self, committed: bool) -> None:
        known, last = Id(NEXT), Ended(CLIENT, committed, NEXT)
        assert known.repeated_end(by(CLIENT), last, committed=committed) == NEXT
        with pytest.raises(TxnError, match="INVALID_TXN_STATE"):
            known.repeated_end(by(CLIENT), last, committed=not committed)

    def test_the_producer_id_after_the_last_epoch_may_be_a_lower_one(self) -> None:
        """Brokers hand out producer ids in blocks."""
        after = Producer(3, 0)
        assert Id(after).repeated_end(by(CLIENT), Ended(CLIENT, True, after), committed=True) == after

    @ENDS
    def test_the_same_end_may_be_asked_for_until_it_is_certain(self, committed: bool) -> None:
        known = Id()
        known.begin()
        for either in (True, False):
            known.refuse_other_end(committed=either)
        for _ in range(2):
            known.ask_to_end(committed=committed)
        assert known.may_be_committed is committed
        for asked in (known.ask_to_end, known.refuse_other_end):
            with pytest.raises(TxnError, match="CONCURRENT_TRANSACTIONS"):
                asked(committed=not committed)
        known.refuse_other_end(committed=committed)
        known.apply(TransactionEvent.REFUSED)
        known.ask_to_end(committed=not committed)

    @pytest.mark.parametrize(
        ("known", "asks", "last"),
        [
            (NEXT, CLIENT, None),
            (CLIENT, CLIENT, Ended(CLIENT, True, CLIENT)),
            (NEXT, NEXT, Ended(CLIENT, True, NEXT)),
            (Producer(7, 5), CLIENT, Ended(CLIENT, True, NEXT)),
            (Producer(7, 2), CLIENT, Ended(CLIENT, True, NEXT)),
            (NEXT, Producer(7, 2), Ended(CLIENT, True, NEXT)),
        ],
        ids=[
            "nothing ended",
            "the epoch stays",
            "with the new identity",
            "replaced since",
            "not heard of",
            "replaced before",
        ],
    )
    def test_all_others_are_no_repetition(self, known: Producer, asks: Producer, last: Ended | None) -> None:
        assert Id(known).repeated_end(by(asks), last, committed=True) is None


class TestStates:
    def test_what_the_table_does_not_have_does_not_happen(self) -> None:
        known = Id()
        assert not known.drop()
        with pytest.raises(LocalProtocolError):
            known.ask_to_end(committed=True)
        assert [known.begin(), known.begin()] == [True, False]
        known.ask_to_end(committed=True)
        for change in (known.begin, known.initialize):
            with pytest.raises(LocalProtocolError):
                change()
        known.apply(TransactionEvent.COMMITTED)
        assert known.state is TransactionState.COMPLETE_COMMIT

    @ENDS
    @pytest.mark.parametrize("before", [True, False, None])
    def test_the_last_outcome_is_that_of_the_former_coordinator(self, committed: bool, before: bool | None) -> None:
        known = Id()
        if before is not None:
            known.restore(committed=before)
        known.restore(committed=committed)
        assert known.state is COMPLETE[committed]

    def test_nobody_has_a_new_id(self) -> None:
        assert TransactionalId(lambda: None).client == NOBODY


@pytest.mark.parametrize("holder", [None, IdHolder("User:alice"), IdHolder("", "client", "10.0.0.1")])
def test_at_rest_it_is_known_who_received_the_identity(holder: IdHolder | None) -> None:
    one, other = Id(), Id()
    one.holder = holder
    packed = one.pack()
    assert packed is not None
    other.unpack(packed)
    assert (other.client, other.holder) == (CLIENT, holder)

"""The view of one transactional id, rule by rule; then histories of any kind."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kproxy.codec._generated.transaction_claim import TransactionClaim
from kproxy.codec._generated.transaction_decision import TransactionDecision
from kproxy.codec._generated.transaction_ended import TransactionEnded
from kproxy.codec._generated.transaction_member import TransactionMember
from kproxy.codec.messages import Message
from kproxy.txn.claims import NOBODY
from kproxy.txn.ids import LAST_EPOCH, Producer
from kproxy.txn.snapshot_views import decode_views, encode_views
from kproxy.txn.unmirrored_offsets import offsets_bytes
from kproxy.txn.verdict import Verdict
from kproxy.txn.view import IdView, LogPosition
from kproxy.txn.view_values import ASKED, DOOMED, LOST, LOST_MEMBERS, BrokerTransaction, EndingMember, Ongoing
from tests.txn.bodies import (
    CLIENT,
    claim,
    decision,
    ended,
    expiry,
    member,
    mirrored,
    native_member,
    offsets,
    partitions,
    prepare,
    producer,
)

C, A, U = Verdict.COMMITTED, Verdict.ABORTED, Verdict.UNDECIDED
P0, P1, P2, P3 = (producer(100, epoch) for epoch in range(4))
Q0 = producer(101, 0)
M, N = producer(200, 0), producer(201, 0)
PLACE = ("t", 0)
NATIVE = BrokerTransaction("slot", Producer(300, 4), level=2, timeout_ms=900)


def view_of(*records: Message) -> IdView:
    """The view after records, each of which has to count."""
    view = IdView("id")
    for offset, body in enumerate(records):
        assert view.apply(body, LogPosition(offset, 1000 + offset)), body
    return view


def refuses(view: IdView, body: Message) -> bool:
    """Whether a record changes nothing at all."""
    before = view_state(view)
    return not view.apply(body, LogPosition(99, 9999)) and view_state(view) == before


def view_state(view: IdView) -> str:
    return repr(
        [(name, sorted(x, key=repr) if isinstance(x, set | list) else x) for name, x in _fields(view)]
        + [(pid, list(epochs)) for pid, epochs in view.committed.items()]
    )


def _fields(view: IdView) -> Iterable[tuple[str, object]]:
    return ((name, getattr(view, name)) for name in IdView.__slots__ if name != "committed")


# -- claims


def test_nothing_is_said_of_an_id_that_nobody_claimed() -> None:
    view = IdView("id")
    assert view.verdict(P0) is U
    for body in (partitions(1, P0, {PLACE: 0}), decision(1, P0, True), prepare(1, P0), expiry(1), mirrored(P0, "g")):
        assert refuses(view, body)


def test_of_two_claims_to_one_place_the_first_in_the_log_wins() -> None:
    view = view_of(claim(1, P0))
    assert refuses(view, claim(2, P0))
    assert refuses(view, claim(2, Q0))  # also with another producer id of the same generation
    assert view.is_ours(claim(1, P0).nonce)
    assert not view.is_ours(claim(2, P0).nonce)


@pytest.mark.parametrize("number", [99, 101])
def test_a_new_generation_may_have_any_producer_id_that_is_fresh(number: int) -> None:
    """Brokers give producer ids in blocks: a later one may be lower."""
    view = view_of(claim(1, P0))
    fresh = producer(number, 0)
    assert view.apply(claim(2, fresh, generation=2), LogPosition(1, 0))
    assert view.next_epoch() == fresh


@pytest.mark.parametrize("number", [0, 7])
def test_an_identity_is_new_if_its_epoch_is_higher(number: int) -> None:
    """0 is the first producer id that a cluster gives."""
    view = view_of(claim(1, P0, client=Producer(number, 3)))
    for at, epoch, then in ((1, 2, 3), (2, 3, 3), (3, 4, 4)):
        assert view.apply(claim(at + 1, producer(100, 2 * at), client=Producer(number, epoch)), LogPosition(at, 0))
        assert view.client == Producer(number, then)
        assert view.claim is not None
        assert view.claim.names_client is (epoch == 4)


def test_a_claim_for_nobody_gives_nobody_the_id() -> None:
    """No kproxy writes it as the first, and none may fail when it reads one."""
    view = view_of(claim(1, P0, client=NOBODY))
    assert view.client == NOBODY
    assert view.apply(claim(2, P2, client=Producer(0, 0)), LogPosition(1, 0))
    assert view.client == Producer(0, 0)


def test_whether_the_owner_wrote_anything_itself() -> None:
    wrote = partitions(1, P0, {PLACE: 0}), offsets(1, P0, "g", {PLACE: 5}), member(1, P0, M, 5, "m")
    assert [view_of(claim(1, P0), body).has_own_data() for body in wrote] == [True, True, False]
    assert view_of(claim(1, P0), wrote[0], continuing(2, P2, P0)).has_own_data()


def test_a_claim_begins_after_the_block_of_the_last_one() -> None:
    view = view_of(claim(1, P0, epochs=2))
    assert refuses(view, claim(2, P1))
    assert view.apply(claim(2, P2), LogPosition(1, 0))
    assert view.claim is not None
    assert view.claim.end_epoch == 4


def test_a_claim_may_leave_epochs_out() -> None:
    assert view_of(claim(1, P0, epochs=1), claim(2, P3)).verdict(P2) is A


def test_a_new_generation_needs_a_producer_id_that_nobody_used() -> None:
    view = view_of(claim(1, P0))
    assert refuses(view, claim(2, Q0, generation=3))
    assert refuses(view, claim(2, P2, generation=2))
    assert refuses(view, claim(2, Producer(101, 0), generation=2))  # without kproxy's bits
    assert view.apply(claim(2, Q0, generation=2), LogPosition(1, 0))
    assert refuses(view, claim(3, P2))
    assert refuses(view, claim(3, P2, generation=3))
    assert refuses(view, claim(3, producer(101, 2), generation=1))


@pytest.mark.parametrize(("first", "epochs"), [(0, 0), (0, -1), (-1, 3), (LAST_EPOCH, 2)])
def test_a_block_holds_epochs_that_there_are(first: int, epochs: int) -> None:
    assert refuses(IdView("id"), claim(1, producer(100, first), epochs=epochs))


def test_the_last_epoch_may_be_used() -> None:
    last = producer(100, LAST_EPOCH)
    assert view_of(claim(1, last, epochs=1), decision(1, last, True)).verdict(last) is C


def test_a_claim_aborts_what_is_undecided_below_it() -> None:
    view = view_of(claim(1, P0), decision(1, P0, True), partitions(1, P1, {PLACE: 5}), claim(2, P2))
    assert [view.verdict(part) for part in (P0, P1, P2, P3)] == [C, A, U, U]
    assert view.bound(PLACE) is None
    assert view.ongoing is None
    view = view_of(claim(1, P0), claim(2, Q0, generation=2))
    assert [view.verdict(part) for part in (P0, P3, producer(100, 99), Q0)] == [A, A, A, U]


def test_epochs_above_the_block_and_unknown_producer_ids_are_undecided() -> None:
    view = view_of(claim(1, P0))
    assert [view.verdict(part) for part in (P2, Q0, M)] == [U, U, U]


def test_what_a_claim_aborted_is_not_taken_for_the_decision_before() -> None:
    # T1 is committed, T2 is aborted by a claim: a client that repeats the end of T2 must not receive that of T1
    view = view_of(claim(1, P0), decision(1, P0, True), partitions(1, P1, {PLACE: 5}), claim(2, P2))
    assert view.last is not None
    assert (view.last.producer, view.last.committed, view.last.by_claim) == (P1, False, True)
    assert view.last.client == view.last.next_client == CLIENT
    assert view.is_doomed
    assert not view_of(claim(1, P0), decision(1, P0, True), claim(2, P2)).is_doomed


def test_a_claim_on_behalf_of_another_leaves_the_client_as_it_is_by_then() -> None:
    nobody = Producer(-1, -1)
    view = view_of(claim(1, P0, client=Producer(7, 3)), decision(1, P0, True).replaced(next_client_epoch=4))
    assert view.apply(claim(2, P2, client=nobody), LogPosition(2, 0))
    assert view.client == Producer(7, 4)
    assert view.claim is not None
    assert view.claim.client == view.client
    assert view.claim.resumed == nobody
    first = claim(1, P0, client=Producer(7, 4)).replaced(resumed_producer_id=7, resumed_epoch=3)
    view = view_of(first, claim(2, P2, client=nobody))
    assert view.claim is not None
    assert (view.claim.client, view.claim.resumed) == (Producer(7, 4), Producer(7, 3))
    for following in (Producer(7, 5), Producer(5, 0)):
        view = view_of(first, decision(1, P0, True, next_client=following), claim(2, P2, client=nobody))
        assert view.claim is not None
        assert (view.claim.client, view.claim.resumed) == (following, nobody)


def test_a_client_is_doomed_until_it_knows() -> None:
    unasked, asked = decision(1, P0, False), decision(1, P0, False).replaced(reason=ASKED)
    assert view_of(claim(1, P0), unasked).is_doomed
    assert not view_of(claim(1, P0), asked).is_doomed
    assert not view_of(claim(1, P0), decision(1, P0, True)).is_doomed
    assert not view_of(claim(1, P0), unasked.replaced(next_client_epoch=1)).is_doomed


@pytest.mark.parametrize("reason", [LOST, DOOMED])
def test_a_claim_that_aborts_members_alone_does_not_hide_that_the_client_lost_its_own_data(reason: str) -> None:
    # else the parts that were prepared before are committed without what the owner itself wrote
    lost = claim(2, P2) if reason == LOST else decision(1, P0, False).replaced(reason=DOOMED)
    number, following = (2, P2) if reason == LOST else (1, P1)
    view = view_of(claim(1, P0), partitions(1, P0, {PLACE: 1}), lost, member(number, following, M, 5))
    assert view.is_doomed
    assert view.apply(claim(3, producer(100, 4)), LogPosition(9, 0))
    assert view.last is not None
    assert (view.last.producer, view.last.reason, view.is_doomed) == (following, reason, True)


def test_a_client_that_knows_of_what_it_lost_loses_members_alone() -> None:
    asked = decision(1, P0, False).replaced(reason=ASKED)
    view = view_of(claim(1, P0), partitions(1, P0, {PLACE: 1}), asked, member(1, P1, M, 5), claim(2, P2))
    assert view.last is not None
    assert view.last.reason == LOST_MEMBERS


@pytest.mark.parametrize("following", [Producer(7, 1), Producer(5, 0)])
def test_a_client_that_was_replaced_leaves_nothing_doomed_behind(following: Producer) -> None:
    view = view_of(claim(1, P0), partitions(1, P0, {PLACE: 5}), claim(2, P2, client=following))
    assert view.last is not None
    assert view.last.by_claim
    assert not view.is_doomed
    assert view.client == following


# -- a transaction


def test_a_decision_decides_its_epoch_alone() -> None:
    view = view_of(claim(1, P0), partitions(1, P0, {PLACE: 5}), decision(1, P0, True))
    assert [view.verdict(part) for part in (P0, P1)] == [C, U]
    assert view.bound(PLACE) is None
    view = view_of(claim(1, P0), decision(1, P0, False))
    assert [view.verdict(part) for part in (P0, P1)] == [A, U]


def test_a_decision_is_the_current_owners_and_of_its_block() -> None:
    view = view_of(claim(1, P0), claim(2, P2))
    for number, part in ((1, P0), (1, P2), (2, P0), (2, P1), (2, producer(100, 4)), (3, P2), (2, Q0)):
        assert refuses(view, decision(number, part, True))


def test_what_is_decided_stays_decided() -> None:
    view = view_of(claim(1, P0), decision(1, P0, True), decision(1, P1, False))
    for part in (P0, P1):
        for committed in (True, False):
            assert refuses(view, decision(1, part, committed))
        assert refuses(view, partitions(1, part, {PLACE: 1}))
        assert refuses(view, prepare(1, part))


def test_partitions_say_where_undecided_data_may_begin() -> None:
    view = view_of(claim(1, P0), partitions(1, P0, {PLACE: 5, ("t", 1): 7}))
    assert view.ongoing is not None
    assert view.ongoing == (P0, LogPosition(1, 1001))
    assert view.apply(partitions(1, P0, {PLACE: 9, ("t", 2): 1}), LogPosition(2, 0))
    assert [view.bound(("t", index)) for index in range(4)] == [5, 7, 1, None]
    assert view.ongoing.since.offset == 1
    for body in (partitions(2, P0, {PLACE: 0}), partitions(1, P2, {PLACE: 0}), offsets(2, P0, "g", {PLACE: 1})):
        assert refuses(view, body)


def test_a_decision_tells_the_clients_next_identity() -> None:
    later = Producer(7, 1)
    view = view_of(claim(1, P0), decision(1, P0, True, next_client=later))
    assert view.client == later
    assert view.last is not None
    assert (view.last.client, view.last.next_client, view.last.at) == (CLIENT, later, LogPosition(1, 1001))
    assert not view.last.by_claim


@pytest.mark.parametrize(
    ("known", "named", "counts"),
    [
        (Producer(7, 3), Producer(7, 4), True),
        (Producer(7, 3), Producer(7, 6), True),
        (Producer(7, 3), Producer(7, 3), False),
        (Producer(7, 3), Producer(7, 2), False),
        (Producer(7, LAST_EPOCH), Producer(8, 0), True),
        (Producer(8, 0), Producer(7, LAST_EPOCH), False),
        (Producer(7, 3), Producer(-1, -1), False),
    ],
)
def test_a_claim_names_no_identity_that_a_decision_gave_to_another_producer(
    known: Producer, named: Producer, counts: bool
) -> None:
    """Its claimant had read the log before that decision: it has to claim again. What was open is aborted anyhow."""
    view = view_of(claim(1, P0), decision(1, P0, True, next_client=known), partitions(1, P1, {PLACE: 0}))
    assert view.apply(claim(2, P2, client=named), LogPosition(3, 1003))
    assert view.claim is not None
    assert view.claim.names_client is counts
    assert view.client == view.claim.client == (named if counts else known)
    assert view.verdict(P1) is A
    assert view.is_doomed is not counts


def test_copies_are_kept_of_what_was_committed() -> None:
    copies = {P0: {PLACE: {0: 5, 3: 9}}}
    view = view_of(claim(1, P0), decision(1, P0, True, [P0], copies=copies))
    assert view.copies == {P0: {("t", 0, 0): 5, ("t", 0, 3): 9}}
    assert not view.is_former(P0)
    assert [view.is_other_copy(P0, PLACE, 3, offset) for offset in (8, 9, 10)] == [True, False, True]
    assert not view_of(claim(1, P0), decision(1, P0, False, [P0], copies=copies)).copies


def test_copies_are_forgotten_by_partition() -> None:
    copies = {P0: {("t", index): {0: 5} for index in range(3)}}
    view = view_of(claim(1, P0), decision(1, P0, True, [P0], copies=copies))
    view.forget_copies(P0, ("t", 1))
    assert [view.is_other_copy(P0, ("t", index), 0, 9) for index in range(3)] == [True, False, True]
    for index in (0, 2):
        view.forget_copies(P0, ("t", index))
    assert not view.copies


# -- batch ids


def test_a_batch_is_committed_once() -> None:
    view = view_of(claim(1, P0), decision(1, P0, True, batch_id="7"))
    assert refuses(view, decision(1, P1, True, batch_id="7"))
    assert view.verdict(P1) is U
    assert view.apply(decision(1, P1, False, batch_id="7"), LogPosition(2, 0))  # what was written again can be aborted


def test_a_batch_that_was_aborted_can_be_committed_later() -> None:
    view = view_of(claim(1, P0), decision(1, P0, False, batch_id="7"), decision(1, P1, True, batch_id="7"))
    assert view.verdict(P1) is C


def test_batch_ids_are_forgotten_at_last() -> None:
    view = view_of(
        claim(1, P0, epochs=200), *(decision(1, producer(100, n), True, batch_id=str(n)) for n in range(129))
    )
    assert len(view.batch_ids) == 128
    assert refuses(view, decision(1, producer(100, 129), True, batch_id="1"))
    assert view.apply(decision(1, producer(100, 129), True, batch_id="0"), LogPosition(200, 0))


# -- members


def test_one_decision_covers_members() -> None:
    view = view_of(claim(1, P0), member(1, P0, M, 5), member(1, P0, N, 6), partitions(5, M, {PLACE: 3}))
    assert [view.verdict(part) for part in (P0, M, N)] == [U, U, U]
    assert view.bound(PLACE) == 3
    assert view.apply(decision(1, P0, True, [P0, M]), LogPosition(9, 0))
    assert [view.verdict(part) for part in (P0, M, N)] == [C, C, A]
    assert view.bound(PLACE) is None


def test_a_member_begins_the_owners_transaction() -> None:
    view = view_of(claim(1, P0), member(1, P0, M, 5))
    assert view.ongoing == (P0, LogPosition(1, 1001))
    assert refuses(view, expiry(1))


def test_members_are_aborted_with_their_owner() -> None:
    for last in (decision(1, P0, False), decision(1, P0, True), claim(2, P2)):
        view = view_of(claim(1, P0), member(1, P0, M, 5), offsets(5, M, "g", {PLACE: 1}), last)
        assert view.verdict(M) is A
        assert not view.pending
        for late in (partitions(5, M, {PLACE: 1}), prepare(5, M), member(1, P0, N, 6)):
            assert refuses(view, late)


def test_who_joins_is_new_and_has_kproxys_bits() -> None:
    view = view_of(claim(1, P0), member(1, P0, M, 5))
    wrong = [
        member(1, P0, M, 6),
        member(2, P0, N, 6),
        member(1, P2, N, 6),
        member(1, P0, P1, 6),
        member(1, P0, Producer(201, 0), 6),
        member(1, P0, producer(201, -1), 6),
        member(1, P0, producer(201, 32_767), 6),
        member(5, M, N, 6),
    ]
    assert all(refuses(view, body) for body in wrong)
    assert view.apply(member(1, P0, producer(200, 1), 6), LogPosition(2, 0))  # the same producer id with its next epoch


def test_the_last_epoch_of_a_member_may_be_used() -> None:
    last = producer(200, LAST_EPOCH)
    assert view_of(claim(1, P0), member(1, P0, last, 5)).members.keys() == {last}


def test_a_members_records_carry_its_own_nonce() -> None:
    view = view_of(claim(1, P0), member(1, P0, M, 5))
    for number in (1, 6):
        for body in (partitions(number, M, {PLACE: 1}), offsets(number, M, "g", {PLACE: 1}), prepare(number, M)):
            assert refuses(view, body)
    assert refuses(view, decision(5, M, True))
    assert refuses(view, decision(1, M, True))


def test_a_decision_names_its_own_members_only() -> None:
    view = view_of(claim(1, P0), member(1, P0, M, 5))
    for parts in ([M], [N], [P0], [P1, P1], [P1, P1, M]):
        assert refuses(view, decision(1, P1, True, parts))
    assert refuses(view, decision(1, P0, True, [M, M]))
    assert refuses(view_of(claim(1, P0), member(1, P1, M, 5)), decision(1, P0, True, [M]))


# -- parts that are prepared


def test_what_is_prepared_survives_claims_and_is_decided_by_the_then_owner() -> None:
    for committed, verdict in ((True, C), (False, A)):
        view = view_of(
            claim(1, P0),
            partitions(1, P0, {PLACE: 5}),
            member(1, P0, M, 5, "task"),
            member(1, P0, N, 6),
            prepare(1, P0),
            prepare(5, M),
            claim(2, Q0, generation=2),
        )
        assert [view.verdict(part) for part in (P0, M, N)] == [U, U, A]
        assert refuses(view, prepare(6, N))
        assert view.bound(PLACE) == 5
        assert view.prepared[M].name == "task"
        assert not view.is_doomed
        for former in (decision(1, P0, True), decision(1, P1, True, [P0, M]), decision(2, P0, True, [M])):
            assert refuses(view, former)
        assert view.apply(decision(2, Q0, committed, [P0, M]), LogPosition(9, 0))
        assert [view.verdict(part) for part in (Q0, P0, M, N)] == [verdict, verdict, verdict, A]
        assert not view.prepared
        assert view.bound(PLACE) is None


def test_what_is_prepared_says_which_client_had_the_id_then() -> None:
    former, newer, last = Producer(7, 3), Producer(7, 4), producer(100, 4)
    view = view_of(
        claim(1, P0, client=former),
        member(1, P0, M, 5, "task"),
        prepare(5, M),
        claim(2, P2, client=NOBODY),  # on behalf of the same client
        partitions(2, P2, {PLACE: 5}),
        prepare(2, P2),
        claim(3, last, client=newer),
        partitions(3, last, {PLACE: 6}),
        prepare(3, last),
    )
    assert {part: one.client for part, one in view.prepared.items()} == {M: former, P2: former, last: newer}


def test_what_is_prepared_takes_nothing_more() -> None:
    view = view_of(claim(1, P0), member(1, P0, M, 5), prepare(5, M), prepare(1, P0))
    for part, number in ((P0, 1), (M, 5)):
        for body in (partitions(number, part, {PLACE: 1}), offsets(number, part, "g", {}), prepare(number, part)):
            assert refuses(view, body)
    assert refuses(view, decision(1, P0, True, [M]))  # it takes an epoch of its own
    assert refuses(view, member(1, P0, N, 6))


def test_the_next_transaction_may_begin_after_a_prepared_one() -> None:
    view = view_of(claim(1, P0), partitions(1, P0, {PLACE: 5}), prepare(1, P0))
    assert view.ongoing is None
    assert view.apply(partitions(1, P1, {PLACE: 7}), LogPosition(3, 0))
    assert view.ongoing is not None
    assert view.bound(PLACE) == 5


def test_a_decision_leaves_another_open_transaction_alone() -> None:
    view = view_of(
        claim(1, P0, epochs=3),
        prepare(1, P0),
        partitions(1, P1, {PLACE: 7}),
        decision(1, P2, True, [P0]),
    )
    assert view.ongoing is not None
    assert view.ongoing.producer == P1
    assert [view.verdict(part) for part in (P0, P1, P2)] == [C, U, C]


# -- group offsets


def test_offsets_wait_for_the_decision_and_then_for_the_broker() -> None:
    first, second = offsets(1, P0, "g", {PLACE: 5}), offsets(1, P0, "h", {PLACE: 6})
    view = view_of(claim(1, P0), first, second)
    assert view.ongoing is not None
    assert list(view.undecided_groups()) == [(P0, first), (P0, second)]
    assert view.apply(decision(1, P0, True), LogPosition(3, 0))
    assert not view.pending
    assert view.unmirrored == {(P0, "g"): [first], (P0, "h"): [second]}
    assert view.apply(mirrored(P0, "g"), LogPosition(4, 0))
    assert refuses(view, mirrored(P0, "g"))
    assert list(view.unmirrored) == [(P0, "h")]


def test_offsets_of_what_is_aborted_are_forgotten() -> None:
    for last in (decision(1, P0, False), claim(2, P2)):
        view = view_of(claim(1, P0), offsets(1, P0, "g", {PLACE: 5}), last)
        assert not view.pending
        assert not view.unmirrored


def test_offsets_of_what_is_prepared_are_kept() -> None:
    pending = offsets(1, P0, "g", {PLACE: 5})
    view = view_of(claim(1, P0), pending, prepare(1, P0), claim(2, P2))
    assert list(view.undecided_groups()) == [(P0, pending)]
    assert view.apply(decision(2, P2, True, [P0]), LogPosition(4, 0))
    assert view.unmirrored == {(P0, "g"): [pending]}


# -- expiry


def test_a_member_of_the_brokers_is_to_be_ended_as_it_was_decided() -> None:
    begun = (claim(1, P0), native_member(1, P0, M, 5, "m", NATIVE), native_member(1, P0, N, 6, "n", NATIVE))
    view = view_of(*begun)
    assert view.members[M].broker_transaction == NATIVE
    assert view.members[M].expires_ms == 1001 + 900
    assert not view.ending
    committed = view_of(*begun, prepare(5, M, [PLACE]), prepare(6, N), decision(1, P0, True, [P0, M, N]))
    assert committed.ending == {M: EndingMember(NATIVE, "m", True, False), N: EndingMember(NATIVE, "n", True, True)}
    left_out = view_of(*begun, prepare(5, M, [PLACE]), decision(1, P0, True, [P0, M]))
    assert left_out.ending == {M: EndingMember(NATIVE, "m", True, False), N: EndingMember(NATIVE, "n", False, False)}
    claimed = view_of(*begun, prepare(5, M, [PLACE]), claim(2, P2))
    assert claimed.ending == {N: EndingMember(NATIVE, "n", False, False)}
    assert claimed.apply(decision(2, P2, False, [P2, M]), LogPosition(9, 0))
    assert claimed.ending[M] == EndingMember(NATIVE, "m", False, False)


def test_an_id_is_not_given_up_before_the_broker_was_informed() -> None:
    view = view_of(claim(1, P0), native_member(1, P0, M, 5, "m", NATIVE), decision(1, P0, False))
    assert refuses(view, expiry(1))
    assert refuses(view, ended(N))
    assert view.apply(ended(M), LogPosition(9, 0))
    assert not view.ending
    assert refuses(view, ended(M))
    assert view.apply(expiry(1), LogPosition(10, 0))


def test_an_id_expires_by_a_record_and_comes_back_by_a_claim() -> None:
    view = view_of(claim(1, P0), decision(1, P0, True), expiry(1))
    assert view.expired
    assert view.last is not None
    assert view.last.producer == P0
    assert view.verdict(P0) is C
    for late in (partitions(1, P1, {PLACE: 1}), decision(1, P1, True), member(1, P1, M, 5), prepare(1, P1)):
        assert refuses(view, late)
    assert view.apply(claim(2, P2), LogPosition(9, 0))
    assert not view.expired


def test_an_id_that_is_in_use_does_not_expire() -> None:
    assert refuses(view_of(claim(1, P0)), expiry(2))
    assert refuses(view_of(claim(1, P0), partitions(1, P0, {PLACE: 1})), expiry(1))
    assert refuses(view_of(claim(1, P0), prepare(1, P0)), expiry(1))


def test_an_id_is_touched_by_what_counts() -> None:
    view = view_of(claim(1, P0))
    assert refuses(view, claim(2, P0))
    assert view.touched == LogPosition(0, 1000)


def test_a_member_that_is_decided_is_kept_as_a_bit() -> None:
    view = view_of(claim(1, P0), member(1, P0, M, 5), member(1, P0, N, 6), prepare(6, N), decision(1, P0, True, [N]))
    assert not view.members
    assert [view.verdict(part) for part in (M, N)] == [A, C]
    assert view.producer_ids() == {P0.producer_id, M.producer_id, N.producer_id}
    for late in (
        member(1, P1, M, 5),
        member(1, P1, N, 6),
        prepare(5, M),
        partitions(6, N, {PLACE: 1}),
        claim(2, producer(200, 5), generation=2),
        decision(1, P1, True, [M]),
        decision(1, P1, False, [N]),
    ):
        assert refuses(view, late)
    assert view.apply(member(1, P1, producer(200, 1), 7), LogPosition(9, 0))


def test_of_aborted_epochs_those_of_the_present_claim_are_kept() -> None:
    view = view_of(claim(1, P0), member(1, P0, M, 5), decision(1, P0, False, [M]))
    assert view.aborted == {P0}
    assert view.apply(claim(2, P2), LogPosition(9, 0))
    assert not view.aborted
    assert [view.verdict(part) for part in (P0, M)] == [A, A]


def test_what_is_decided_of_a_member_by_name_stays_so_when_its_owner_is() -> None:
    view = view_of(claim(1, P0), member(1, P0, M, 5), prepare(5, M), decision(1, P1, True, [M]))
    assert refuses(view, decision(1, P0, False, [M]))
    assert view.verdict(M) is C


# -- who is next


def test_all_agree_on_the_epoch_that_is_next() -> None:
    view = IdView("id")
    assert view.next_epoch() is None
    for body, following in (
        (claim(1, P0, epochs=3), P0),
        (partitions(1, P0, {PLACE: 0}), P0),
        (prepare(1, P0), P1),
        (member(1, P1, M, 5), P1),
        (decision(1, P1, False), P2),
        (decision(1, P2, True, [P0]), None),
        (claim(2, P3, epochs=1), P3),
        (expiry(2), None),
    ):
        assert view.apply(body, LogPosition(0, 0))
        assert view.next_epoch() == following


@pytest.mark.parametrize("first, second", [(P0, P1), (P1, P0)])
def test_the_transaction_that_was_written_last_is_the_open_one(first: Producer, second: Producer) -> None:
    """No kproxy leaves one open and begins another; every reader takes it in the same way."""
    view = view_of(claim(1, P0), partitions(1, first, {PLACE: 0}), partitions(1, second, {PLACE: 1}))
    assert view.ongoing == Ongoing(second, LogPosition(2, 1002))
    assert view.next_epoch() == second
    assert view.apply(prepare(1, first), LogPosition(3, 0))
    assert view.ongoing == Ongoing(second, LogPosition(2, 1002))


@pytest.mark.parametrize(
    ("records", "is_settled"),
    [
        ((), True),
        ((partitions(1, P0, {PLACE: 0}),), False),
        ((prepare(1, P0),), False),
        ((member(1, P0, M, 5), partitions(1, P1, {PLACE: 0}), decision(1, P1, True)), False),
        ((native_member(1, P0, M, 5, "m", NATIVE), decision(1, P0, False)), False),
        ((native_member(1, P0, M, 5, "m", NATIVE), decision(1, P0, False), ended(M)), True),
        ((offsets(1, P0, "g", {PLACE: 5}), decision(1, P0, True)), False),
        ((offsets(1, P0, "g", {PLACE: 5}), decision(1, P0, True), mirrored(P0, "g")), True),
    ],
    ids=["claimed", "open", "prepared", "a member", "not ended", "ended", "not mirrored", "mirrored"],
)
def test_an_id_is_settled_when_nobody_has_anything_to_do(records: Iterable[Message], is_settled: bool) -> None:
    assert view_of(claim(1, P0), *records).is_settled is is_settled


def test_group_offsets_are_measured() -> None:
    moved = offsets(1, P0, "g", {PLACE: 5})
    assert view_of(claim(1, P0), moved).offsets_bytes == offsets_bytes(moved)


def test_what_is_open_and_whose_data_it_is() -> None:
    view = view_of(claim(1, P0), member(1, P0, M, 5), partitions(5, M, {PLACE: 1}), prepare(5, M))
    since = view.open_since()
    assert since is not None
    assert (since.producer, since.since.offset, view.has_own_data()) == (P0, 1, False)
    assert view.apply(claim(2, P2), LogPosition(4, 0))
    assert view.open_since() is None
    assert view.last is not None
    assert view.last.reason == LOST_MEMBERS
    view = view_of(
        claim(1, P0), partitions(1, P0, {PLACE: 1}), member(1, P0, M, 5), member(1, P0, N, 6), prepare(1, P0)
    )
    since = view.open_since()
    assert since is not None  # the first member, though its transaction is prepared
    assert (since.producer, since.since.offset, view.has_own_data()) == (P0, 2, False)
    assert refuses(view, expiry(1))


# -- any history

_numbers = st.integers(1, 3)
_mains = st.builds(producer, st.sampled_from([100, 101]), st.integers(0, 7))
_joining = st.builds(producer, st.just(200), st.integers(0, 2))
_parts = _mains | _joining
_places = st.dictionaries(st.tuples(st.just("t"), st.integers(0, 1)), st.integers(0, 9), max_size=2)
_claims = st.builds(
    lambda number, pid, block: claim(number, producer(100 + pid, 2 * block), generation=1 + pid),
    _numbers,
    st.sampled_from([0, 0, 0, 1]),
    st.integers(0, 3),
)
_histories = st.lists(
    st.one_of(
        _claims,
        st.builds(partitions, _numbers, _parts, _places),
        st.builds(offsets, _numbers, _parts, st.just("g"), _places),
        st.builds(member, _numbers, _mains, _joining, _numbers),
        st.builds(prepare, _numbers, _parts),
        st.builds(decision, _numbers, _mains, st.booleans(), st.lists(_parts, max_size=3)),
        st.builds(mirrored, _parts, st.just("g")),
        st.builds(expiry, _numbers),
    ),
    max_size=25,
).map(lambda records: [claim(1, P0), *records])
PARTS = [producer(pid, epoch) for pid in (100, 101) for epoch in range(8)] + [producer(200, n) for n in range(3)]


@settings(max_examples=400, deadline=None)
@given(_histories)
def test_a_verdict_that_was_given_is_final(records: list[Message]) -> None:
    view, given_before = IdView("id"), dict.fromkeys(PARTS, U)
    for offset, body in enumerate(records):
        view.apply(body, LogPosition(offset, 0))
        now = {part: view.verdict(part) for part in PARTS}
        changed = {part for part in PARTS if now[part] is not given_before[part]}
        assert all(given_before[part] is U for part in changed)
        given_before = now


class KeepingView(IdView):
    """Never drops a member."""

    def _forget_members(self) -> None:
        """Drops nothing."""

    def open_since(self) -> Ongoing | None:
        """Ignores members that are decided: only this view still holds them."""
        kept = self.members
        self.members = {part: joined for part, joined in kept.items() if self.verdict(part) is U}
        try:
            return super().open_since()
        finally:
            self.members = kept


@settings(max_examples=400, deadline=None)
@given(_histories)
@example([claim(1, P0), member(1, P0, M, 5), claim(2, P2), expiry(2)])  # the claim aborts the member, so the id is idle
def test_to_forget_members_changes_no_verdict_and_what_counts(records: list[Message]) -> None:
    keeping, view = KeepingView("id"), IdView("id")
    for offset, body in enumerate(records):
        at = LogPosition(offset, 0)
        assert view.apply(body, at) == keeping.apply(body, at), body
        (view,) = decode_views(encode_views([view])).views
        for name in ("prepared", "bounds", "pending", "unmirrored", "ongoing", "last", "claim", "client", "expired"):
            assert getattr(view, name) == getattr(keeping, name), name
        assert [view.verdict(part) for part in PARTS] == [keeping.verdict(part) for part in PARTS]
        assert view.producer_ids() == keeping.producer_ids()
        assert view.next_epoch() == keeping.next_epoch()
        assert all(view.verdict(part) is U for part in view.members)


_native_histories = st.lists(
    st.one_of(
        _claims,
        st.builds(native_member, _numbers, _mains, _joining, _numbers, st.just("m"), st.just(NATIVE)),
        st.builds(prepare, _numbers, _parts, st.lists(st.just(PLACE), max_size=1)),
        st.builds(decision, _numbers, _mains, st.booleans(), st.lists(_parts, max_size=3)),
        st.builds(ended, _parts),
        st.builds(expiry, _numbers),
    ),
    max_size=25,
).map(lambda records: [claim(1, P0), *records])


@settings(max_examples=400, deadline=None)
@given(_native_histories)
def test_a_member_that_joined_is_ended_once_by_its_verdict(records: list[Message]) -> None:
    view = IdView("id")
    joined: set[Producer] = set()
    told: set[Producer] = set()
    for offset, body in enumerate(records):
        if view.apply(body, LogPosition(offset, 0)):
            if isinstance(body, TransactionMember):
                joined.add(Producer(body.member_producer_id, body.member_epoch))
            elif isinstance(body, TransactionEnded):
                told.add(Producer(body.producer_id, body.epoch))
        (view,) = decode_views(encode_views([view])).views
        decided = {part for part in joined if view.verdict(part) is not U}
        assert set(view.ending) == decided - told
        assert all(one.committed is (view.verdict(part) is C) for part, one in view.ending.items())


@settings(max_examples=300, deadline=None)
@given(_histories)
def test_only_claims_and_decisions_of_the_current_owner_decide(records: list[Message]) -> None:
    view = IdView("id")
    for offset, body in enumerate(records):
        owner = view.claim
        before = [view.verdict(part) for part in PARTS]
        took = view.apply(body, LogPosition(offset, 0))
        if [view.verdict(part) for part in PARTS] != before:
            assert took
            assert isinstance(body, TransactionClaim | TransactionDecision)
            assert isinstance(body, TransactionClaim) or (owner is not None and body.nonce == owner.nonce)


@settings(max_examples=300, deadline=None)
@given(_histories)
def test_what_does_not_count_leaves_no_trace(records: list[Message]) -> None:
    view, other = IdView("id"), IdView("id")
    for offset, body in enumerate(records):
        if view.apply(body, LogPosition(offset, 0)):
            assert other.apply(body, LogPosition(offset, 0))
    assert view == other


@settings(max_examples=300, deadline=None)
@given(_histories)
def test_commits_name_all_and_bounds_are_of_what_is_undecided(records: list[Message]) -> None:
    view = IdView("id")
    for offset, body in enumerate(records):
        took = view.apply(body, LogPosition(offset, 0))
        if took and isinstance(body, TransactionDecision):
            named = {Producer(body.producer_id, body.epoch), *(Producer(x.producer_id, x.epoch) for x in body.parts)}
            assert {view.verdict(part) for part in named} == {C if body.committed else A}
        assert all(view.verdict(part) is U for part in (*view.bounds, *view.pending, *view.prepared))
        assert view.ongoing is None or view.verdict(view.ongoing.producer) is U


@settings(max_examples=200, deadline=None)
@given(_histories)
def test_a_claim_of_a_fresh_block_decides_all_but_what_is_prepared(records: list[Message]) -> None:
    view = IdView("id")
    for offset, body in enumerate(records):
        view.apply(body, LogPosition(offset, 0))
    written = {*view.bounds, *view.pending}
    assert view.claim is not None
    fresh = claim(9, producer(300, 0), generation=len(view.generations) + 1)
    assert view.apply(fresh, LogPosition(99, 0))
    assert all(part in view.prepared for part in written if view.verdict(part) is U)
    assert replace(view.claim, at=LogPosition(0, 0)).nonce == fresh.nonce


# -- an open transaction that the next claim continues


def continuing(number: int, first: Producer, continued: Producer, client: Producer = NOBODY) -> TransactionClaim:
    return claim(number, first, client=client, continued=continued)


def commit(number: int, main: Producer, former: Producer, end: int) -> TransactionDecision:
    body = decision(number, main, True, [main, former], copies={former: {PLACE: {}}})
    body.parts[1].topics[0].partitions[0].end_offset = end
    return body


OPEN = (claim(1, P0), partitions(1, P0, {PLACE: 7}, first_sequence=3), offsets(1, P0, "g", {PLACE: 4}))


def test_a_claim_continues_what_is_open_if_it_names_it() -> None:
    view = view_of(*OPEN)
    since = view.ongoing.since if view.ongoing else None
    view = view_of(*OPEN, continuing(2, P2, P0))
    assert view.ongoing == Ongoing(P2, since)
    assert (view.verdict(P0), view.verdict(P2)) == (U, U)
    assert [view.continued(part) for part in (P1, P2, P3)] == [[], [P0], []]
    assert view.is_former(P0)
    assert not view.is_former(P2)
    assert view.last is None
    assert view.bound(PLACE) == 7
    assert [(part, row.group_id) for part, row in view.undecided_groups()] == [(P2, "g")]
    assert view.has_own_data()
    assert decode_views(encode_views([view])).views == [view]


def test_nothing_of_the_former_claim_counts_after_it() -> None:
    view = view_of(*OPEN, continuing(2, P2, P0))
    for body in (
        partitions(1, P0, {("t", 1): 9}),
        offsets(1, P0, "g", {PLACE: 9}),
        decision(1, P0, True, [P0]),
        decision(1, P0, False),
        member(1, P0, M, 5),
        prepare(1, P0),
        commit(2, P0, P0, 9),
    ):
        assert refuses(view, body), body


def test_the_decision_of_what_continues_decides_all() -> None:
    view = view_of(*OPEN, continuing(2, P2, P0), commit(2, P2, P0, 20))
    assert (view.verdict(P0), view.verdict(P2)) == (C, C)
    assert [key for key in view.unmirrored] == [(P2, "g")]
    assert not view.bounds
    assert not view.first_sequences
    assert not view.members
    assert decode_views(encode_views([view])).views == [view]


def test_what_a_former_instance_writes_after_the_end_is_not_shown() -> None:
    view = view_of(*OPEN, continuing(2, P2, P0), commit(2, P2, P0, 20))
    assert not view.is_other_copy(P0, PLACE, 0, 19)
    assert view.is_other_copy(P0, PLACE, 0, 20)
    assert view.is_other_copy(P0, ("t", 1), 0, 0), "nothing was announced there"
    assert not view.is_other_copy(P2, PLACE, 0, 25)
    assert view.is_former(P0), "its instance may still take it for its own"
    view.forget_copies(P0, PLACE)
    assert not view.is_former(P0)


@pytest.mark.parametrize(
    "end",
    [decision(2, P2, False), decision(2, P2, False, [P2, P0]), decision(2, P2, True, [P2]), claim(3, producer(100, 4))],
    ids=["abort", "abort of both", "commit without it", "claim"],
)
def test_else_the_former_part_is_aborted(end: Message) -> None:
    view = view_of(*OPEN, continuing(2, P2, P0), end)
    assert view.verdict(P0) is A
    assert not view.is_former(P0)
    assert not view.bounds
    assert decode_views(encode_views([view])).views == [view]


def test_it_may_be_continued_again_and_under_another_producer_id() -> None:
    view = view_of(
        *OPEN,
        continuing(2, P2, P0),
        partitions(2, P2, {PLACE: 9}, first_sequence=4),
        claim(3, Q0, generation=2, client=NOBODY, continued=P2),
    )
    assert view.continued(Q0) == [P0, P2]
    assert view.awaits_client()
    assert decode_views(encode_views([view])).views == [view]
    body = decision(3, Q0, True, [Q0, P0, P2])
    assert view.apply(body, LogPosition(9, 9))
    assert {view.verdict(part) for part in (P0, P2, Q0)} == {C}


def test_a_client_is_not_waited_for_where_the_sequences_of_one_epoch_are_missing() -> None:
    for sequence in (0, -1):
        wrote = partitions(2, P2, {PLACE: 9}, first_sequence=sequence)
        view = view_of(*OPEN, continuing(2, P2, P0), wrote, continuing(3, producer(100, 4), P2))
        assert view.awaits_client() is (sequence == 0)


def test_members_of_what_is_prepared_do_not_keep_the_next_transaction_from_being_continued() -> None:
    view = view_of(claim(1, P0), member(1, P0, M, 5), prepare(1, P0), partitions(1, P1, {PLACE: 7}))
    assert view.continuable() == view.ongoing == Ongoing(P1, LogPosition(3, 1003))


def test_an_epoch_without_data_leaves_nothing_behind() -> None:
    view = view_of(*OPEN, continuing(2, P2, P0), continuing(3, producer(100, 4), P2))
    assert view.continued(producer(100, 4)) == [P0]
    assert view.verdict(P2) is A


@pytest.mark.parametrize(
    ("before", "second"),
    [
        ((), continuing(2, P2, P1)),
        ((), continuing(2, P2, P0, Producer(7, 1))),
        ((), continuing(2, P2, P0, Producer(0, 0))),
        ((member(1, P0, M, 5),), continuing(2, P2, P0)),
        ((decision(1, P0, False),), continuing(2, P2, P0)),
    ],
    ids=["another epoch", "a new producer", "the first producer", "it has members", "it is decided"],
)
def test_else_it_is_a_claim_as_any_other(before: Iterable[Message], second: Message) -> None:
    view = view_of(*OPEN, *before, second)
    assert view.ongoing is None
    assert (view.verdict(P0), view.verdict(M)) == (A, A if before and view.aborted_members else U)
    assert view.verdict(P2) is U


def test_a_transaction_waits_for_its_client_only_if_its_sequences_are_known() -> None:
    begun = claim(1, P0)
    assert view_of(*OPEN).awaits_client()
    assert not view_of(begun).awaits_client()
    assert not view_of(begun, offsets(1, P0, "g", {PLACE: 4})).awaits_client()
    assert not view_of(begun, partitions(1, P0, {PLACE: 7})).awaits_client()
    assert not view_of(*OPEN, partitions(1, P0, {("t", 1): 7})).awaits_client()
    assert not view_of(*OPEN, member(1, P0, M, 5)).awaits_client()
    assert view_of(*OPEN, partitions(1, P0, {PLACE: 9}, first_sequence=5)).first_sequences == {P0: {PLACE: 5}}

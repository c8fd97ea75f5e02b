"""Lists of batches in doubt: what they hold, how they are stored, and what another process makes of them."""

from dataclasses import replace

import pytest

from kproxy.codec.stored import decode_stored
from kproxy.dedup.digest import UNTIMED
from kproxy.dedup.former_lanes import FormerLanes, newest_lists
from kproxy.dedup.identity import Identity
from kproxy.dedup.lane_record import LaneRecord, decode_value, describe, encode_key, encode_value
from kproxy.dedup.lanes import Lane
from kproxy.dedup.listed import MOST_BYTES, InDoubt, ListedBatch, listed
from kproxy.dedup.producer_connection import Suspect
from kproxy.dedup.producer_ids import KPROXY_BIT
from kproxy.dedup.retry_ledger import LookElsewhere, Recover
from tests.dedup.talk import KEY, OTHER, World
from tests.dedup.wires import CLEAN_WINDOW, ONE, RULES

PID = KPROXY_BIT | 7
BATCH = ListedBatch((b"t", 3), PID, 1, 5, 900, 1_700_000_000_000, clean=False)
LANE = LaneRecord("me", PID, 0, 31, Identity("", "one", "localhost"), 1_000, returned=True)


def named(world: World, name: str = "other", at_ms: int = 1) -> dict[str, InDoubt]:
    """What is in doubt of a producer in a world, as an instance lists it."""
    return {name: listed(world.ledgers.in_doubt(ONE, world.now), at_ms)}


def successor(world: World, *, at_ms: int = 1) -> World:
    """Another process, with the same log."""
    again = World()
    again.logs, again.now, again._producer_id = world.logs, world.now, world._producer_id + 100
    again.lists = named(world, at_ms=at_ms)
    return again


class TestStored:
    def test_a_list_is_read_as_it_was_written(self) -> None:
        batches = (BATCH, BATCH._replace(sequence=6, base_offset=-1), BATCH._replace(key=(b"\0" * 16, 0), clean=True))
        record = LANE._replace(in_doubt=InDoubt(12, tuple(sorted(batches)), is_cut=True))
        assert decode_value(LANE.key, encode_value(record)) == record
        assert describe(encode_key(LANE.key), encode_value(record)).endswith(" returned in_doubt=3+")

    def test_batches_of_a_partition_share_its_name_in_memory(self) -> None:
        batches = tuple(BATCH._replace(sequence=number) for number in range(5))
        read = decode_value(LANE.key, encode_value(LANE._replace(in_doubt=InDoubt(12, batches)))).in_doubt
        assert read is not None
        assert read.batches == batches
        assert len({id(batch.key) for batch in read.batches}) == 1

    def test_its_bytes_never_change(self) -> None:
        value = encode_value(LANE._replace(in_doubt=InDoubt(12, (BATCH,))))
        assert value.hex().endswith(
            "03" "0001" "01" "0208" "000000000000000c" "0429" "02" "0274" "00000003" "4000000000000007"
            "02" "0001" "00000005" "0000000000000384" "0000018bcfe56800" "00" "00" "00"
        )  # fmt: skip

    def test_an_entry_without_one_does_not_say_what_is_in_doubt(self) -> None:
        plain, empty = decode_value(LANE.key, encode_value(LANE)), LANE._replace(in_doubt=InDoubt(12))
        assert (plain.in_doubt, plain.says_all) == (None, False)
        assert decode_value(LANE.key, encode_value(empty)).says_all
        assert not empty._replace(returned=False).says_all
        assert not empty._replace(in_doubt=InDoubt(12, is_cut=True)).says_all

    def test_an_older_kproxy_reads_the_rest(self) -> None:
        from kproxy.codec._generated.producer_state_value import ProducerStateValue

        value = decode_stored(ProducerStateValue, encode_value(LANE._replace(in_doubt=InDoubt(12, (BATCH,)))))
        assert (value.epoch, value.last_epoch, value.returned, value.unknown_tags) == (0, 31, True, {})


class TestBounds:
    def test_what_surely_is_repeated_comes_before_what_is_not_and_newer_before_older(self) -> None:
        many = [BATCH._replace(sequence=nth, since_ms=nth, clean=nth % 2 == 0) for nth in range(10_000)]
        found = listed(many, 1)
        assert found.is_cut
        assert not any(batch.clean for batch in found.batches)
        assert min(batch.sequence for batch in found.batches) == 9_999 - 2 * (len(found.batches) - 1)
        assert MOST_BYTES // 30 < len(found.batches) < MOST_BYTES // 24
        assert len(encode_value(LANE._replace(in_doubt=found))) < MOST_BYTES + 100

    def test_long_names_count(self) -> None:
        many = [BATCH._replace(key=(b"n" * 240 + b"%d" % nth, 0)) for nth in range(1000)]
        assert len(encode_value(LANE._replace(in_doubt=listed(many, 1)))) < MOST_BYTES + 5000

    def test_what_fits_is_whole(self) -> None:
        assert listed([BATCH], 1) == InDoubt(1, (BATCH,))

    def test_lists_count_towards_what_all_lanes_may_take(self) -> None:
        former = FormerLanes("me".__eq__)
        for nth in range(100):
            batches = tuple(BATCH._replace(sequence=one) for one in range(2_000))
            identity = LANE.identity._replace(client_id=f"c{nth}")
            former._apply(
                _record(LANE._replace(producer_id=PID + nth, identity=identity, in_doubt=InDoubt(1, batches)))
            )
        assert 10 < len(former) < 50
        assert former.dropped == 100 - len(former)


def _record(lane: LaneRecord):  # type: ignore[no-untyped-def] # noqa: ANN202
    from kproxy.codec.batch import Record

    return Record(0, 0, encode_key(lane.key), encode_value(lane))


def test_of_each_instance_the_newest_list_counts() -> None:
    lists = [InDoubt(5, (BATCH,)), None, InDoubt(9), InDoubt(7, (BATCH,))]
    lanes = [LANE._replace(instance_id=name, in_doubt=one) for name in ("me", "other") for one in lists]
    assert newest_lists([*lanes, LANE._replace(instance_id="third")]) == {"me": InDoubt(9), "other": InDoubt(9)}


def test_by_another_clock_all_is_as_old() -> None:
    moved = InDoubt(5_000, (BATCH._replace(since_ms=4_000),)).moved_to(9_000)
    assert moved == InDoubt(9_000, (BATCH._replace(since_ms=8_000),))


class TestWhatIsListed:
    def test_what_is_confirmed_is_not(self) -> None:
        world = World()
        talk = world.connect()
        for letter in "abcdefghijkl":
            talk.did(letter)
        assert named(world)["other"].batches == (), "the entry of a producer id in use does not say"
        talk.close()
        assert 0 < len(named(world)["other"].batches) <= 7
        assert all(batch.clean for batch in named(world)["other"].batches)

    def test_what_was_matched_is_in_doubt_until_its_client_has_the_response(self) -> None:
        world = World()
        first = world.connect()
        first.did("a")
        first.close(reset=True)
        (before,) = named(world)["other"].batches
        second = world.connect()
        world.now += 50
        second.did("a")
        (during,) = named(world)["other"].batches
        assert during == before._replace(since_ms=during.since_ms)
        assert during.since_ms - before.since_ms == pytest.approx(50_000, abs=10), "the client has just repeated it"
        for letter in "bcdefg":
            second.did(letter)
        second.member.review(world.now)
        assert named(world)["other"].batches == ()

    def test_what_was_matched_is_in_doubt_while_the_response_is_not_acknowledged(self) -> None:
        world = World()
        first = world.connect()
        first.did("a")
        first.close(reset=True)
        second = world.connect()
        second.wire.missing = 1 << 20
        second.did("a")
        second.member.look_between(world.now)
        assert len(named(world)["other"].batches) == 1

    def test_what_is_too_old_is_not(self) -> None:
        world = World()
        talk = world.connect()
        talk.did("a")
        talk.close(reset=True)
        world.now += 121
        assert named(world)["other"].batches == ()

    def test_what_only_a_search_found_is_not(self) -> None:
        """The next process finds it as well, since nothing says that all is known of its producer id."""
        world = World()
        world.connect().did("a")
        again = World(former=[Suspect(101, 0, 31)])
        again.logs = world.logs
        talk = again.connect()
        talk.world.clear(talk, Recover([Suspect(101, 0, 31)], [KEY]))
        assert talk.member.ledger.held == 1
        assert again.ledgers.in_doubt(ONE, again.now) == []
        talk.did("a")
        assert len(again.ledgers.in_doubt(ONE, again.now)) == 1, "the client has repeated it"

    def test_of_an_unknown_producer_nothing_is(self) -> None:
        assert World().ledgers.in_doubt(ONE, 0.0) == ()

    def test_a_former_list_is_in_the_list_that_replaces_it(self) -> None:
        world = World()
        talk = world.connect()
        talk.did("a")
        talk.close(reset=True)
        again = successor(world)
        again.connect()
        assert named(again) == again.lists


class TestParts:
    @pytest.mark.parametrize("order", ["abc", "cba", "bca", "bc"])
    def test_of_a_batch_of_which_a_part_is_listed_the_rest_is_searched_for(self, order: str) -> None:
        """Two processes were killed; the second had found the batch in the log, and one record of it was repeated."""
        world = World()
        world.connect().did("abc")
        second, third = (World(former=[Suspect(101, 0, 31)]) for _ in range(2))
        second.logs = third.logs = world.logs
        second.connect().did("b")
        third.lists = named(second)
        assert [batch.offsets for batch in third.lists["other"].batches] == [(1,)]
        for letter in order:
            third.connect().did(letter)
        assert world.text() == "abc"

    def test_two_instances_may_list_a_part_each(self) -> None:
        world = World()
        talk = world.connect()
        talk.did("abc")
        talk.close(reset=True)
        (whole,) = named(world)["other"].batches
        again = World()
        again.logs = world.logs
        parts = {"x": (0, 1), "y": (1, 2)}
        again.lists = {name: InDoubt(1, (whole._replace(offsets=part),)) for name, part in parts.items()}
        for letter in "abc":
            again.connect().did(letter)
        assert world.text() == "abc"
        again.connect().did("b", time=99)
        assert world.text() == "abcb"

    def test_each_batch_is_listed_once_with_the_records_that_are_in_doubt(self) -> None:
        world = World()
        first = world.connect()
        first.did("abc")
        first.close(reset=True)
        second = world.connect()
        second.did("b")
        (both,) = named(world)["other"].batches
        assert both.offsets == (0, 1, 2)
        for letter in "defghi":
            second.did(letter)
        second.member.review(world.now)
        (rest,) = named(world)["other"].batches
        assert (rest.place, rest.offsets) == (both.place, (0, 2)), "the retry of the second was received"
        again = successor(world)
        third = again.connect()
        for letter in "bca":
            third.did(letter)
        assert again.text() == "abcdefghib"
        assert {batch.place for batch in again.ledgers.in_doubt(ONE, again.now)} == {both.place}

    def test_a_whole_batch_and_a_part_of_it_are_the_whole_batch(self) -> None:
        part = BATCH._replace(offsets=(900,), since_ms=BATCH.since_ms + 5)
        whole = BATCH._replace(clean=True)
        for batches in ((part, whole), (whole, part)):
            assert listed(batches, 1).batches == (BATCH._replace(since_ms=part.since_ms),)

    def test_offsets_are_stored_and_take_room(self) -> None:
        some = BATCH._replace(offsets=tuple(range(900, 910)))
        record = LANE._replace(in_doubt=InDoubt(1, (some,)))
        assert decode_value(LANE.key, encode_value(record)) == record
        many = [some._replace(sequence=nth) for nth in range(10_000)]
        assert len(listed(many, 1).batches) < MOST_BYTES // 100

    def test_what_is_not_read_back_stays_a_part(self) -> None:
        again = World()
        again.lists = {"other": InDoubt(1, (BATCH._replace(key=KEY, offsets=(901,), since_ms=1_000_000),))}
        assert again.ledgers.in_doubt(ONE, again.now) == ()
        again.connect()
        assert [batch.offsets for batch in again.ledgers.in_doubt(ONE, again.now)] == [(901,)]


class TestWhatIsCompared:
    def test_what_is_listed_is_read_and_compared(self) -> None:
        world = World()
        talk = world.connect()
        for letter in "abc":
            talk.did(letter)
        talk.close(reset=True)
        again = successor(world)
        second = again.connect()
        for letter in "dabcd":
            second.did(letter)
        assert again.text() == "abcdd"

    def test_records_of_connections_that_ended_in_good_order_are_compared_by_their_timestamps(self) -> None:
        world = World()
        talk = world.connect()
        talk.did("a", time=7)
        talk.close()
        world.now += 1
        again = successor(world)
        second = again.connect()
        second.did("a", time=8)
        second.did("a", time=7)
        assert again.text() == "aa"

    def test_nothing_else_is(self) -> None:
        world = World()
        talk = world.connect()
        talk.did("a", keys=(OTHER,))
        talk.close(reset=True)
        again = successor(world)
        second = again.connect()
        assert second.prerequisite() is None
        second.did("a")
        assert again.text() == "a"

    def test_a_list_is_taken_once_and_of_a_newer_one_what_is_new(self) -> None:
        world = World()
        talk = world.connect()
        talk.did("a")
        talk.close(reset=True)
        again = successor(world)
        second = again.connect()
        second.did("a")
        for letter in "bcdefg":
            second.did(letter)
        second.member.review(again.now)
        assert again.ledgers.in_doubt(ONE, again.now) == [], "its client has received the response"
        again.lists = named(world, at_ms=2)
        assert again.ledgers.in_doubt(ONE, again.now) == []
        world.now += 5
        retry = world.connect()
        retry.did("a")
        retry.close(reset=True)
        again.lists = named(world, at_ms=3)
        assert len(again.ledgers.in_doubt(ONE, again.now)) == 1, "it was lost once more"

    def test_what_is_in_doubt_here_already_is_not_taken_again(self) -> None:
        world = World()
        talk = world.connect()
        talk.did("a")
        talk.close(reset=True)
        again = successor(world)
        again.connect()
        assert len(again.ledgers.in_doubt(ONE, again.now)) == 1
        again.lists["third"] = again.lists["other"]
        assert len(again.ledgers.in_doubt(ONE, again.now)) == 1

    def test_what_is_too_old_is_not_taken(self) -> None:
        world = World()
        talk = world.connect()
        talk.did("a")
        talk.close(reset=True)
        again = successor(world)
        again.now += 121
        again.connect()
        assert again.ledgers.in_doubt(ONE, again.now) == []

    def test_a_producer_is_remembered_as_long_as_a_list_of_it_counts(self) -> None:
        """Else what its client has received would be in doubt again with its next connection."""
        world = World()
        talk = world.connect()
        talk.did("a")
        talk.close(reset=True)
        again = successor(world)
        second = again.connect()
        for letter in "abcdefg":
            second.did(letter)
        second.member.review(again.now)
        second.close()
        again.now += 20
        again.ledgers.sweep(again.now)
        third = again.connect()
        third.did("a", time=9)
        assert again.text().count("a") == 2
        again.now += 130
        third.close()
        again.ledgers.sweep(again.now)
        again.now += 130
        again.ledgers.sweep(again.now)
        assert again.ledgers.in_question() == []


def elsewhere(lane: Lane, **more: object) -> Suspect:
    return Suspect(lane.producer_id, 0, 31, elsewhere=True, **more)  # type: ignore[arg-type]


class TestSearches:
    def test_what_another_instance_gave_back_and_listed_is_not_searched_for(self) -> None:
        world = World()
        world.elsewhere = [elsewhere(Lane(900), returned=True, says_all=True, recorded_at=world.now - 1.5)]
        assert world.connect().prerequisite() is None

    @pytest.mark.parametrize("age", [0.5, -5.0])
    def test_it_is_for_connections_that_were_opened_before(self, age: float) -> None:
        """They may bring what their client sent before it came to the other instance."""
        world = World()
        world.elsewhere = [elsewhere(Lane(900), returned=True, says_all=True, recorded_at=world.now - age)]
        assert world.connect().prerequisite() == Recover(world.elsewhere, [KEY])

    def test_and_for_requests_after_the_end_of_their_connection(self) -> None:
        world = World()
        world.elsewhere = [elsewhere(Lane(900), returned=True, says_all=True, recorded_at=world.now - 50)]
        talk = world.connect()
        talk.wire.gone = True
        assert talk.prerequisite() == Recover(world.elsewhere, [KEY])

    def test_before_what_came_over_it_is_written_others_leases_are_read_again_once(self) -> None:
        world = World(replace(RULES, fleet=True))
        talk = world.connect()
        assert talk.prerequisite() is None
        talk.wire.gone = True
        assert talk.prerequisite() == LookElsewhere()
        world.elsewhere = [elsewhere(Lane(900), recorded_at=world.now)]
        changes = world.changes
        talk.member.ledger.looked_elsewhere(talk.member)
        assert world.changes > changes
        prerequisite = talk.prerequisite()
        assert prerequisite == Recover(world.elsewhere, [KEY])
        world.clear(talk, prerequisite)
        assert talk.prerequisite() is None

    def test_what_was_given_back_without_a_list_is_searched_for(self) -> None:
        world = World()
        world.elsewhere = [elsewhere(Lane(900), returned=True, recorded_at=world.now - 50)]
        assert world.connect().prerequisite() == Recover(world.elsewhere, [KEY])

    def test_of_a_shared_producer_each_connection_has_the_log_searched(self) -> None:
        world = World()
        talk = world.connect()
        talk.did("a")
        other = World()
        other.logs, other._producer_id = world.logs, 200
        other.elsewhere = [elsewhere(talk.lane, shared=True)]
        for letter in "abc":
            talk.did(letter)
            second = other.connect()
            assert second.prerequisite() == Recover(other.elsewhere, [KEY])
            second.did(letter)
            assert second.prerequisite() is None
        assert world.text() == "aabc"
        other.elsewhere = []
        other.ledgers.sweep(other.now)
        assert second.member.ledger._shared_looks == {}

    def test_far_back_only_records_with_the_same_timestamp_match(self) -> None:
        former = [Suspect(101, 0, 31)]
        world = World()
        first = world.connect()
        for nth, letter in enumerate("abcdef"):
            first.did(letter, time=7 + nth)
        for time, text in ((7, "abcdef"), (-1, "abcdefa")):
            again = World(former=former)
            again.logs = {key: replace(log, batches=list(log.batches)) for key, log in world.logs.items()}
            again.last = 2
            again.connect().did("f", time=12)
            again.connect().did("a", time=time)
            assert again.text() == text

    @pytest.mark.parametrize(("more", "text"), [({}, "a"), ({"says_all": True}, "aa"), ({"shared": True}, "aa")])
    def test_records_without_timestamps_match_the_last_ones_where_nobody_knows_better(
        self, more: dict[str, bool], text: str
    ) -> None:
        world = World()
        first = world.connect()
        first.did("a")
        again = World()
        again.logs, again._producer_id = world.logs, 200
        again.elsewhere = [elsewhere(first.lane, recorded_at=again.now, **more)]
        again.connect().did("a", time=-1)
        assert again.text() == text


@pytest.mark.parametrize(("clean_window", "log"), [(0.0, "aa"), (CLEAN_WINDOW, "a")])
def test_what_a_declared_relay_may_have_closed_stays_comparable_in_another_process(
    clean_window: float, log: str
) -> None:
    world = World()
    talk = world.connect(clean_window=clean_window)
    talk.did("a", time=UNTIMED)
    talk.close()
    again = successor(world)
    again.now += 1
    again.connect(clean_window=clean_window).did("a", time=UNTIMED)
    assert again.text() == log

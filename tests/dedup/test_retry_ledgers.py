"""All producers together."""

from math import inf

import pytest

from kproxy.codec.produce_layout import PartitionData
from kproxy.dedup import doubt_memory
from kproxy.dedup import retry_ledgers as module
from kproxy.dedup.identity import Identity
from kproxy.dedup.lanes import Lane
from kproxy.dedup.producer_connection import Suspect
from kproxy.dedup.retry_ledger import ReadBack, Recover, Settle
from kproxy.dedup.unconfirmed import PendingProduce
from tests.dedup.talk import KEY, OTHER, World


def test_producers_are_told_apart() -> None:
    world = World()
    first, second = world.connect(), world.connect(Identity("", "another", "localhost"))
    first.write(first.ask("a"))
    first.close()
    second.did("a")
    assert world.text() == "aa"


def test_what_is_in_doubt_is_counted_and_goes_with_the_window() -> None:
    world = World()
    talk = world.connect()
    talk.did("a")
    talk.close(reset=True)
    world.ledgers.sweep(world.now)
    assert world.ledgers.unconfirmed == 1
    world.now += 121
    world.ledgers.sweep(world.now)
    assert world.ledgers.unconfirmed == 0
    assert talk.member.ledger.idle


def test_the_memory_of_what_is_in_doubt_counts_by_batches_and_records() -> None:
    world, sizes = World(), [0]

    def size() -> int:
        world.ledgers.sweep(world.now)
        return world.ledgers.size

    for name in "one", "two":
        talk = world.connect(Identity("", name, "localhost"))
        talk.did("abcdefghij")
        talk.close(reset=True)
        sizes.append(size())
    assert 0 < sizes[1] == sizes[2] - sizes[1]
    assert isinstance(world.connect().prerequisite(), ReadBack)
    world.connect().did("z")  # what is in doubt of this producer is read back
    assert sizes[2] + 500 < size() < sizes[2] + 10_000
    world.now += 121
    assert size() == 0


def test_nothing_is_dropped_while_there_is_room() -> None:
    world = World()
    assert (world.ledgers.unconfirmed, world.ledgers.size, world.ledgers.sweep(world.now)) == (0, 0, 0)
    for letter in "ab":
        talk = world.connect()
        talk.did(letter)
        talk.close(reset=True)
    assert world.ledgers.sweep(world.now) == 0
    last = world.connect()
    last.did("a")
    last.did("b")
    assert world.text() == "ab"


def test_a_producer_of_which_nothing_matters_any_more_is_forgotten() -> None:
    world = World()
    talk, other = world.connect(), world.connect(Identity("", "another", "localhost"))
    talk.did("a")
    talk.close(reset=True)
    assert list(world.ledgers.counts()) == [talk.member.ledger.identity]
    world.now += 121
    world.ledgers.sweep(world.now)
    assert not world.ledgers.counts()
    assert world.connect().member.ledger is not talk.member.ledger
    again = world.connect(Identity("", "another", "localhost"))
    assert again.member.ledger is other.member.ledger


def test_of_what_was_found_far_back_the_oldest_goes_where_it_takes_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FOUND_BYTES", 2000)
    world = World()
    first = world.connect()
    for nth, letter in enumerate("abcdef"):
        first.did(letter, time=7 + nth)
    again = World(former=[Suspect(first.lane.producer_id, 0, 31)])
    again.logs, again.last = world.logs, 1
    talk = again.connect()
    again.clear(talk, Recover([Suspect(first.lane.producer_id, 0, 31)], [KEY]))
    assert (talk.member.ledger.held, talk.member.ledger.count) == (6, 1)
    assert again.ledgers.sweep(again.now) == 3
    assert [list(entry.offsets) for entry in talk.member.ledger.entries[KEY]] == [[3], [4], [5]]


def test_the_oldest_goes_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt_memory, "MAX_PEER_BYTES", 5700)
    world = World()
    for letter in "abc":
        talk = world.connect()
        talk.did(letter)
        talk.close(reset=True)
    assert world.ledgers.sweep(world.now) == 2
    assert world.ledgers.unconfirmed == 1  # what was dropped is not counted any more
    last = world.connect()
    last.did("c")
    last.did("a")
    assert world.text() == "abca"


def test_former_lanes_are_searched_for_once_on_each_partition() -> None:
    world = World(former=[Suspect(101, 0, 31)])
    former = world.connect()
    former.did("a")
    successor = World(former=[Suspect(101, 0, 31)])
    successor.logs = world.logs
    talk = successor.connect()
    assert isinstance(talk.prerequisite(), Recover)
    talk.did("a")
    assert talk.prerequisite() is None
    assert successor.text() == "a"


def test_what_another_instance_wrote_is_searched_for_once_for_each_of_its_leases() -> None:
    other, world = World(), World()
    world.logs = other.logs
    other.connect().did("a")
    world.elsewhere = [Suspect(101, 0, 31, elsewhere=True)]
    talk = world.connect()
    assert talk.prerequisite() == Recover(world.elsewhere, [KEY])
    talk.did("a")
    assert world.text() == "a"
    world.elsewhere = [Suspect(101, 0, 31, elsewhere=True, returned=True, recorded_at=1001.0)]
    assert world.connect().prerequisite() is None  # the same lease
    world.elsewhere = [Suspect(101, 0, 64, elsewhere=True)]
    talk = world.connect()
    assert talk.prerequisite() == Recover(world.elsewhere, [KEY])
    before = world.ledgers.counts()
    talk.world.clear(talk, Recover(world.elsewhere, [KEY]))
    assert world.ledgers.counts() == before  # nothing of the former lease is found a second time


def of_two_leases(again: World) -> World:
    """A world in whose log another instance wrote ``a`` under epoch 31 and ``b`` under epoch 33 of one producer id."""
    other = World()
    lane = other.connect().lane
    for epoch, letter in ((31, "a"), (33, "b")):
        talk = other.connect()
        talk.lane = Lane(lane.producer_id, epoch)
        talk.did(letter)
    again.logs = other.logs
    again.elsewhere = [Suspect(lane.producer_id, 0, 31, elsewhere=True)]
    again.recent = {lane.producer_id}
    return again


@pytest.mark.parametrize("windows", [1, 3])
def test_what_was_recovered_is_not_recovered_again_however_long_ago(windows: int) -> None:
    """Even if the next lease of that producer id is said to include the former one."""
    world = of_two_leases(World())
    talk = world.connect()
    talk.did("z")
    producer_id = world.elsewhere[0].producer_id
    world.elsewhere, world.recent = [], set()
    for _ in range(windows):
        world.now += 100
        world.ledgers.sweep(world.now)
    world.elsewhere = [Suspect(producer_id, 0, 31, elsewhere=True, returned=True)]
    assert world.connect().prerequisite() is None
    world.elsewhere = [Suspect(producer_id, 0, 64, elsewhere=True)]
    talk = world.connect()
    need = talk.prerequisite()
    assert need == Recover(world.elsewhere, [KEY])
    before = sum(world.ledgers.counts().values())
    world.clear(talk, need)
    assert sum(world.ledgers.counts().values()) == before + 1, "the batch of the second lease"


def test_what_other_instances_gave_back_long_ago_takes_no_memory_for_each_partition() -> None:
    world = of_two_leases(World())
    talk = world.connect()
    talk.did("z", keys=[(b"t", partition) for partition in range(100)])
    known = talk.member.ledger._recovered_to
    for _ in range(2):
        world.now += 121
        world.ledgers.sweep(world.now)
    assert len(known) == 100, "another instance still has it"
    world.recent = set()
    world.now += 121
    world.ledgers.sweep(world.now)
    assert not known


def swept(world: World, *times: float) -> None:
    """The ledgers are swept at these times, in seconds after the beginning."""
    began = world.now
    for at in times:
        world.now = began + at
        world.ledgers.sweep(world.now)


def test_who_used_a_partition_takes_no_memory_for_long_though_its_producer_is_never_idle() -> None:
    world = World()
    stays, goes = world.connect(), world.connect()
    goes.did("b", keys=[(b"t", partition) for partition in range(1, 100)])
    goes.close()
    answer = stays.did("a")
    swept(world, 0, 120, 240)
    assert list(stays.member.ledger._uses) == [KEY]
    assert stays.member.ledger.is_calm(stays.member, answer)


@pytest.mark.parametrize("sweeps", [(0, 119), (30, 60, 90, 119), (3600, 3719), (-3600, -3481)])
def test_it_is_known_for_a_retry_window_who_used_a_partition(sweeps: tuple[int, ...]) -> None:
    """Whenever ledgers are swept, and though clocks are set: what arrived before is not written after its retry."""
    world = World()
    old, new = world.connect(), world.connect()
    new.did("a")
    new.close()
    old.member.end(world.now)
    swept(world, *sweeps)
    old.write(old.ask("b"))
    assert world.text() == "a"


def test_a_partition_that_is_used_again_is_known_for_another_retry_window() -> None:
    world = World()
    old = world.connect()
    for text, later in (("a", 0), ("b", 60), ("c", 60)):
        new = world.connect()
        new.did(text)
        new.close()
        swept(world, later)
    old.member.end(world.now)
    old.write(old.ask("d"))
    assert world.text() == "abc"


def test_a_request_after_the_end_is_written_where_nobody_has_used_the_partition() -> None:
    world = World()
    talk = world.connect()
    world.connect().did("a", keys=[OTHER])
    talk.member.end(world.now)
    talk.write(talk.ask("b"))
    assert world.text() == "b"


def test_a_newer_connection_outruns_even_if_an_older_one_used_the_partition_after_it() -> None:
    world = World()
    oldest, old, new = world.connect(), world.connect(), world.connect()
    for talk, keys in ((new, [KEY]), (oldest, [KEY]), (old, [OTHER])):
        world.now += 1
        talk.did("a", keys=keys)
    old.member.end(world.now)
    old.write(old.ask("b"))
    assert world.text() == "aa"


@pytest.mark.parametrize("in_doubt", [False, True])
def test_who_uses_a_partition_is_known_though_its_requests_are_not_looked_at(in_doubt: bool) -> None:
    world = World()
    old, before, new = world.connect(), world.connect(), world.connect()
    if in_doubt:
        before.did("x")
        before.close(reset=True)
    for _ in range(20):
        new.did("a", time=8)
    world.ledgers.sweep(world.now)
    world.now += 119
    new.did("a", time=8)
    world.now += 1
    world.ledgers.sweep(world.now)
    written = world.text()
    old.member.end(world.now)
    old.write(old.ask("b"))
    assert world.text() == written


def test_what_a_former_kproxy_had_is_recovered_once_and_takes_no_memory_afterwards() -> None:
    former = [Suspect(101, 0, 31)]
    world = World(former=former)
    talk = world.connect()
    talk.did("a")
    swept(world, 0, 120, 240)
    newer = world.connect()
    assert newer.prerequisite() is None
    former.clear()  # as the shell does after a retry window
    assert newer.prerequisite() is None
    swept(world, 0)
    assert not newer.member.ledger._recovered
    newer.did("b")
    assert not newer.member.ledger._recovered


def test_what_one_instance_gave_back_long_ago_does_not_make_that_of_another_unknown() -> None:
    world = of_two_leases(World())
    in_use = Suspect(900, 0, 31, elsewhere=True)
    world.elsewhere.append(in_use)
    world.recent.add(900)
    world.connect().did("z")
    world.elsewhere, world.recent = [in_use], {900}
    for _ in range(2):
        world.now += 100
        world.ledgers.sweep(world.now)
    assert world.connect().prerequisite() is None


def test_only_requests_that_waited_while_a_partition_did_not_exist_are_not_to_be_sent() -> None:
    world = World(former=[Suspect(101, 0, 31)])
    talk, other = world.connect(), world.connect()
    ledger, unfenced = talk.member.ledger, {KEY: 3}
    assert talk.prerequisite() == Recover([Suspect(101, 0, 31)], [KEY])
    talk.member.waits([KEY])
    ledger.missing(unfenced)
    other.member.waits([KEY])
    assert ledger.missing_for(talk.member, [KEY, OTHER]) == unfenced
    assert talk.prerequisite() is None
    assert ledger.missing_for(other.member, [KEY]) == {}
    talk.member.waits_no_more()
    assert isinstance(other.prerequisite(), Recover)
    assert ledger.missing_for(talk.member, [KEY]) == {}
    assert isinstance(talk.prerequisite(), Recover)


def test_where_nothing_was_fenced_yet_every_request_is_compared() -> None:
    world = World(former=[Suspect(101, 0, 31)])
    talk = world.connect()
    ledger, answer = talk.member.ledger, PendingProduce([PartitionData(KEY, 0, 0)], 1e9)
    talk.member.waits([KEY])
    ledger.missing({KEY: 3})
    talk.member.arrived(answer, world.now)
    ledger.claim(talk.member, answer, [], world.now)
    talk.member.waits_no_more()
    assert not ledger.is_calm(talk.member, answer)
    talk.did("a")
    assert ledger.is_calm(talk.member, answer)


def test_a_partition_is_asked_for_again_after_a_while() -> None:
    world = World(former=[Suspect(101, 0, 31)])
    talk = world.connect()
    talk.member.waits([KEY])
    talk.member.ledger.missing({KEY: 3})
    world.ledgers.sweep(world.now)
    assert isinstance(talk.prerequisite(), Recover)


@pytest.mark.parametrize(
    ("in_use_until", "text"),
    [(inf, "aa"), (999.5, "aa"), (999.0, "a")],  # the first request is taken at 1000.001
    ids=["in use", "given back as clocks may say", "given back before"],
)
def test_an_equal_record_of_another_time_is_no_retry_if_another_instance_may_have_answered(
    in_use_until: float, text: str
) -> None:
    world = World()
    talk = world.connect()
    answer = talk.ask("a", time=7)
    talk.close(reset=True)
    talk.write(answer)  # no response was ever written
    world.elsewhere = [Suspect(900, 0, 31, elsewhere=True, returned=in_use_until < inf, recorded_at=in_use_until)]
    world.connect().did("a", time=9)
    assert world.text() == text


def test_nor_where_it_was_found_of_that_instance_before_the_batch_was_in_doubt() -> None:
    world = World()
    world.elsewhere = [Suspect(900, 0, 31, elsewhere=True)]
    talk = world.connect()
    answer = talk.ask("a", time=7)
    talk.close(reset=True)
    talk.write(answer)
    world.connect().did("a", time=9)
    assert world.text() == "aa"


@pytest.mark.parametrize("returned", [True, False])
@pytest.mark.parametrize(("recorded_at", "text"), [(1000.5, "a"), (998.0, "ab")], ids=["later", "before"])
def test_a_request_read_after_the_end_of_its_connection_is_not_written_if_another_instance_has_gone_on(
    recorded_at: float, text: str, returned: bool
) -> None:
    """Its retry may lie below what is read of the other's batches."""
    other, world = World(), World()
    world.logs = other.logs
    other.connect().did("a")
    world.elsewhere = [Suspect(101, 0, 31, elsewhere=True, returned=returned, recorded_at=recorded_at)]
    talk = world.connect()
    talk.member.end(world.now)
    talk.write(talk.ask("b"))
    assert world.text() == text


def test_a_producer_is_kept_as_long_as_a_request_of_it_is_open() -> None:
    world = World()
    first = world.connect()
    first.ask("a")
    first.close()
    world.ledgers.sweep(world.now)
    assert world.connect().prerequisite() == Settle([KEY])


def test_what_was_answered_before_its_connection_ended_in_good_order_is_not_counted() -> None:
    world = World()
    talk = world.connect()
    talk.did("a")
    talk.close()
    world.ledgers.sweep(world.now)
    assert world.ledgers.unconfirmed == 0
    assert not world.ledgers.counts()

"""The fleet, read from the entries of its topic."""

from typing import Any

from kproxy.codec.records import Record
from kproxy.proxy.announcements import Announcement, announcement_of, encode_key, encode_value
from kproxy.proxy.facts import FleetClient, FleetFact, LegacyClient
from kproxy.proxy.fleet_view import FleetView
from tests.control.fake_facts import STATUS

NOW_MS = 1_700_000_000_000
MADE = announcement_of(
    STATUS._replace(legacy_clients=[], legacy_total=0),
    host="node-7",
    listen="10.0.0.7:9092",
    http="10.0.0.7:19644",
    interval_ms=60_000,
)


def made(instance_id: str, **changes: Any) -> Announcement:
    return MADE._replace(instance_id=instance_id, **changes)


def entry(announcement: Announcement, age_ms: int = 1000) -> Record:
    return Record(0, NOW_MS - age_ms, encode_key(announcement.instance_id), encode_value(announcement))


def fleet(*records: Record) -> FleetFact:
    view = FleetView()
    view.apply(records)
    return view.fleet(NOW_MS, announces=True, incomplete=False)


def names(found: FleetFact) -> list[str]:
    return [row.instance_id for row in found.instances]


def test_all_that_announced_themselves_in_time_are_listed() -> None:
    found = fleet(entry(made("b")), entry(made("a", connections=2)), entry(made("late"), 600_000))
    assert names(found) == ["a", "b"]
    assert (found.total, found.connections, found.ignored) == (2, 44, 0)
    row = found.instances[1]
    assert (row.host, row.http, row.version, row.announced_ms) == ("node-7", "10.0.0.7:19644", "0.1.0", NOW_MS - 1000)


def problems(found: FleetFact) -> list[list[str]]:
    return [row.problems for row in found.instances]


def test_an_instance_that_does_not_announce_itself_in_time_is_in_trouble_and_listed_for_ten_minutes() -> None:
    assert problems(fleet(entry(made("a", interval_ms=5000), 9_000))) == [[]]
    found = fleet(entry(made("a", interval_ms=5000), 10_000), entry(made("b")))
    assert (names(found), found.in_trouble, found.connections) == (["a", "b"], 1, 42)
    assert found.instances[0].problems == [
        "silent since 2023-11-14 22:13:10Z, and due every 5 s: killed, stopped, or without brokers"
    ]
    assert problems(fleet(entry(made("a"), 89_000))) == [[]]
    assert fleet(entry(made("a"), 93_000)).in_trouble == 1
    assert names(fleet(entry(made("a"), 599_000))) == ["a"]
    assert names(fleet(entry(made("a"), 600_000))) == []


def test_one_with_a_long_interval_is_listed_until_it_has_missed_three() -> None:
    assert names(fleet(entry(made("a", interval_ms=600_000), 1_799_000))) == ["a"]
    assert names(fleet(entry(made("a", interval_ms=600_000), 1_800_000))) == []


def test_one_that_was_restarted_without_leaving_is_in_trouble_for_ten_minutes() -> None:
    before, now = made("a", started_ms=NOW_MS - 900_000), made("a", started_ms=NOW_MS - 100_000)
    [row] = fleet(entry(before, 120_000), entry(now)).instances
    assert row.problems == ["restarted at 2023-11-14 22:11:40Z without leaving in good order"]
    again = made("a", started_ms=NOW_MS - 50_000)
    [row] = fleet(entry(before, 120_000), entry(now, 90_000), entry(again)).instances
    assert row.problems == ["restarted 2 times, the last time at 2023-11-14 22:12:30Z, without leaving in good order"]
    long_ago = made("a", started_ms=NOW_MS - 600_000)
    assert problems(fleet(entry(before, 590_000), entry(long_ago))) == [[]]


def test_a_restart_in_good_order_or_with_another_version_is_no_trouble() -> None:
    before, now = made("a", started_ms=NOW_MS - 900_000), made("a", started_ms=NOW_MS - 100_000)
    left = Record(0, NOW_MS - 110_000, encode_key("a"), None)
    assert problems(fleet(entry(before, 120_000), left, entry(now))) == [[]]
    assert problems(fleet(entry(before._replace(version="0.0.9"), 120_000), entry(now))) == [[]]


def test_of_each_instance_the_last_entry_counts() -> None:
    [row] = fleet(entry(made("a"), 5000), entry(made("a", connections=7))).instances
    assert (row.connections, row.announced_ms) == (7, NOW_MS - 1000)


def test_an_instance_that_has_left_is_not_listed() -> None:
    gone = Record(0, NOW_MS, encode_key("a"), None)
    assert names(fleet(entry(made("a")), entry(made("b")), gone, gone)) == ["b"]


def test_who_is_old() -> None:
    found = fleet(*(entry(made(version, version=version)) for version in ("0.9.0", "0.10.0", "0.10.0.dev1", "mine")))
    assert found.newest_version == "0.10.0"
    assert {row.instance_id for row in found.instances if row.old} == {"0.9.0"}
    assert found.old == 1


def test_those_in_trouble_come_first_then_the_old() -> None:
    found = fleet(
        entry(made("c")), entry(made("b", version="0.0.1")), entry(made("d", problems=["no broker has been reached"]))
    )
    assert names(found) == ["d", "b", "c"]
    assert found.in_trouble == 1


def test_two_processes_of_one_instance_id_are_found() -> None:
    one, other = made("a", started_ms=1000), made("a", started_ms=2000, host="node-8")
    [row] = fleet(entry(one), entry(other), entry(one), entry(other)).instances
    assert row.problems == ["instance.id is used by two processes: give each its own"]
    assert fleet(entry(one), entry(one), entry(other), entry(other)).in_trouble == 0


def test_legacy_clients_are_added_up_over_the_fleet() -> None:
    old = LegacyClient("billing", "", 10, ["Produce v2"])
    more = LegacyClient("billing", "", 5, ["Fetch v3", "Produce v2"])
    other = LegacyClient("loader", "sarama", 100, ["Produce v1"])
    found = fleet(
        entry(made("a", legacy_clients=[old], legacy_total=1)),
        entry(made("b", legacy_clients=[more, other], legacy_total=2)),
        entry(made("late", legacy_clients=[other], legacy_total=1), 600_000),
    )
    assert found.legacy_clients == [
        FleetClient("loader", "sarama", 100, 1, ["Produce v1"]),
        FleetClient("billing", "", 15, 2, ["Fetch v3", "Produce v2"]),
    ]
    assert found.legacy_total == 2


def test_what_is_not_used_is_counted_by_reason() -> None:
    view = FleetView()
    view.apply(
        [
            entry(made("a")),
            Record(0, NOW_MS, None, b"x"),
            Record(0, NOW_MS, encode_key("b"), b"\x00\x00"),
            Record(0, NOW_MS, encode_key("b"), b"\x7f\x00"),
            Record(0, NOW_MS, b"", b""),
            Record(0, NOW_MS, encode_key("b"), bytes(8193)),
            Record(0, NOW_MS, bytes(8193), None),
            entry(made("late"), 600_000),
            entry(made("early"), -3_600_000),
        ]
    )
    found = view.fleet(NOW_MS, announces=True, incomplete=False)
    assert (names(found), found.ignored) == (["a"], 7)
    assert view.ignored == {"damaged": 4, "too_long": 2, "too_many": 0, "future": 1, "expired": 1}


def test_an_entry_of_the_future_does_not_make_all_others_old() -> None:
    found = fleet(entry(made("a")), entry(made("b", version="999.0.0"), -3_600_000))
    assert (names(found), found.old, found.ignored) == (["a"], 0, 1)


def test_a_flood_of_instances_is_bounded() -> None:
    view = FleetView()
    value = encode_value(MADE)
    view.apply(Record(0, NOW_MS, encode_key(f"i-{number}"), value) for number in range(20_003))
    found = view.fleet(NOW_MS, announces=False, incomplete=True)
    assert (found.total, found.ignored, len(found.instances)) == (20_000, 3, 500)
    assert (found.announces, found.incomplete) == (False, True)
    # Those that are known are still renewed.
    view.apply([entry(made("i-1", problems=["p"]))])
    assert names(view.fleet(NOW_MS, announces=False, incomplete=True))[0] == "i-1"


def test_long_entries_are_bounded_in_bytes() -> None:
    legacy = [LegacyClient("c" * 250, "s", 1, ["r" * 250] * 5)] * 20
    value = encode_value(made("x", legacy_clients=legacy))
    view = FleetView()
    view.apply(Record(0, NOW_MS, encode_key(f"i-{number}"), value) for number in range(6000))
    found = view.fleet(NOW_MS, announces=True, incomplete=False)
    assert found.total * len(value) <= 32 << 20
    assert found.total + found.ignored == 6000

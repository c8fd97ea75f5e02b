import pytest

from kproxy.proxy.routing import Address, Broker, ClusterMap, preferred_ports


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address("broker", 9092), "broker:9092"),
        (Address("10.0.0.1", 1), "10.0.0.1:1"),
        (Address("::1", 9092), "[::1]:9092"),
    ],
)
def test_addresses_in_words(address: Address, text: str) -> None:
    assert str(address) == text


def test_loopback_is_told_from_what_others_reach() -> None:
    loopback = ["127.0.0.1", "127.3.2.1", "::1", "localhost"]
    assert all(Address(host, 1).is_loopback for host in loopback)
    assert not any(Address(host, 1).is_loopback for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.example", ""))


def cluster() -> ClusterMap:
    return ClusterMap({1: Broker(1, Address("a", 9092), 20001), 2: Broker(2, Address("b", 9092))})


def test_a_broker_is_unknown_when_new_or_moved_or_without_a_port() -> None:
    seen = [(1, "a", 9092), (1, "a", 9093), (1, "c", 9092), (2, "b", 9092), (3, "d", 9092)]
    assert cluster().unknown(seen) == [
        (1, Address("a", 9093)),
        (1, Address("c", 9092)),
        (2, Address("b", 9092)),
        (3, Address("d", 9092)),
    ]
    assert cluster().unknown([]) == []


def test_clients_receive_the_host_that_they_reached() -> None:
    assert cluster().advertised(1, "10.1.1.1") == Address("10.1.1.1", 20001)


def test_or_the_host_and_ports_that_are_configured() -> None:
    known = cluster()
    known.advertised_host, known.port_shift = "kproxy.example", 1000
    assert known.advertised(1, "10.1.1.1") == Address("kproxy.example", 21001)


@pytest.mark.parametrize("node_id", [2, 3])
def test_a_broker_without_a_port_is_not_served(node_id: int) -> None:
    assert cluster().advertised(node_id, "10.1.1.1") is None


@pytest.mark.parametrize("node_id", [-1, 0, 1, 4, 5, 1000, (1 << 31) - 1])
def test_each_port_is_tried_once_beginning_at_the_same_one(node_id: int) -> None:
    ports = preferred_ports(100, 104, node_id)
    assert sorted(ports) == [100, 101, 102, 103, 104]
    assert ports == preferred_ports(100, 104, node_id)


def test_neighbours_prefer_different_ports() -> None:
    assert len({preferred_ports(100, 104, node_id)[0] for node_id in range(1, 6)}) == 5


def test_a_range_of_one_port() -> None:
    assert preferred_ports(100, 100, 7) == [100]


def test_an_id_keeps_its_coordinator_while_that_is_up_and_ids_are_spread() -> None:
    brokers = {n: Broker(n, Address(f"h{n}", 9092), 1000 + n) for n in range(1, 6)}
    known = ClusterMap(brokers, set(brokers))
    ids = [f"id-{n}" for n in range(200)]
    before = {name: known.coordinator(name) for name in ids}
    assert set(before.values()) == set(brokers)
    known.members.discard(3)
    brokers[4].port = None
    after = {name: known.coordinator(name) for name in ids}
    assert all(after[name] == node_id for name, node_id in before.items() if node_id not in (3, 4))
    assert set(after.values()) == {1, 2, 5}
    assert ClusterMap().coordinator("id") == -1


def test_a_topic_that_was_created_again_has_no_other_id_than_its_newest() -> None:
    cluster = ClusterMap()
    for name, topic_id in (("t", b"1" * 16), ("u", b"2" * 16), ("t", b"3" * 16), ("", b"4" * 16), ("v", bytes(16))):
        cluster.learn_name(topic_id, name)
    assert cluster.topic_names == {b"2" * 16: "u", b"3" * 16: "t"}

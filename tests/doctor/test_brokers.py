import pytest

from kproxy.codec.messages import ApiKey
from kproxy.config import Address
from kproxy.doctor import brokers
from kproxy.doctor.examined import ClockSkew, Examined, SeenBroker
from kproxy.doctor.findings import Level
from kproxy.testing.ports import free_ports
from tests.doctor.patients import edit, examined, fake, levels, make_config, only


def nobodys_port() -> int:
    return free_ports(1)[0]


async def test_a_cluster_that_is_well() -> None:
    async with fake() as cluster:
        found = await examined(cluster)
    for look in (brokers.bootstrap, brokers.advertised, brokers.releases, brokers.transactions):
        assert levels(look, found) == [Level.OK], look


async def test_one_bootstrap_server_of_several_is_unreachable() -> None:
    gone = Address("127.0.0.1", nobodys_port())
    async with fake(1) as cluster:
        found = await examined(cluster, f"{gone},{cluster.bootstrap}")
    finding = only(brokers.bootstrap, found)
    assert finding.level is Level.WARN
    assert str(gone) in finding.found


async def test_no_bootstrap_server_answers() -> None:
    gone = Address("127.0.0.1", nobodys_port())
    async with fake(1) as cluster:
        found = await examined(cluster, str(gone))
    assert levels(brokers.bootstrap, found) == [Level.FAIL]
    assert levels(brokers.advertised, found) == [Level.SKIPPED]
    assert found.topics == {}


async def test_a_broker_advertises_what_can_not_be_reached() -> None:
    port = nobodys_port()

    def elsewhere(answer: object) -> None:
        answer.brokers[1].port = port  # type: ignore[attr-defined]

    async with fake(3) as cluster:
        edit(cluster, ApiKey.METADATA, elsewhere)
        found = await examined(cluster)
    finding = only(brokers.advertised, found)
    assert finding.level is Level.FAIL
    assert finding.found == f"broker 2, as advertised: cannot connect to 127.0.0.1:{port}: Connection refused"
    assert len(found.reached) == 2


async def test_a_broker_without_producer_ids() -> None:
    def old(answer: object) -> None:
        answer.api_keys = [row for row in answer.api_keys if row.api_key != ApiKey.INIT_PRODUCER_ID]  # type: ignore[attr-defined]

    async with fake(1) as cluster:
        edit(cluster, ApiKey.API_VERSIONS, old)
        found = await examined(cluster)
    assert levels(brokers.releases, found)[0] is Level.FAIL


def seen(release: str, level: int = 0) -> SeenBroker:
    served = {int(ApiKey.PRODUCE): (0, 13), int(ApiKey.INIT_PRODUCER_ID): (0, 5)}
    features = {"transaction.version": level} if level else {}
    return SeenBroker(1, Address("kafka", 9092), release=release, features=features, versions=served)


def test_brokers_of_several_releases() -> None:
    found = Examined(make_config(), brokers=[seen("4.1"), seen("4.0")])
    assert levels(brokers.releases, found) == [Level.WARN]


@pytest.mark.parametrize(
    ("release", "level", "expected"),
    [("4.1", 2, Level.OK), ("4.1", 1, Level.WARN), ("4.1", 0, Level.WARN), ("3.9", 0, Level.OK)],
)
def test_transaction_version(release: str, level: int, expected: Level) -> None:
    assert levels(brokers.transactions, Examined(make_config(), brokers=[seen(release, level)])) == [expected]


@pytest.mark.parametrize(
    ("ahead_ms", "uncertain_ms", "expected"),
    [
        (0, 5, Level.OK),
        (-900, 5, Level.OK),
        (1_500, 2_000, Level.OK),
        (1_500, 100, Level.WARN),
        (-5_000, 100, Level.WARN),
        (-120_000, 100, Level.FAIL),
    ],
)
def test_clock(ahead_ms: int, uncertain_ms: int, expected: Level) -> None:
    finding = only(brokers.clock, Examined(make_config(), clock=ClockSkew(ahead_ms, uncertain_ms)))
    assert finding.level is expected
    assert ("behind" in finding.found) == (ahead_ms <= 0)

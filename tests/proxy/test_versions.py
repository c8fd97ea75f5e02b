import pytest

from kproxy.codec.messages import ApiKey, request_class
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.versions import FIRST_IN_KAFKA_4, HIDDEN, TRANSACTIONS, served_to_clients, upstream_version
from kproxy.testing.fake_broker.apis import APIS

KAFKA_4 = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.JOIN_GROUP: (2, 9),
    ApiKey.API_VERSIONS: (0, 5),
}


class TestUpstream:
    @pytest.mark.parametrize("api_key", KAFKA_4)
    def test_the_clients_own_where_the_broker_serves_it(self, api_key: ApiKey) -> None:
        first, last = KAFKA_4[api_key]
        start = 3 if api_key == ApiKey.PRODUCE else first
        for version in range(start, last + 1):
            assert upstream_version(api_key, version, (first, last)) == version

    @pytest.mark.parametrize("api_key", KAFKA_4)
    def test_an_older_one_is_lifted_to_one_that_is_served(self, api_key: ApiKey) -> None:
        first, last = KAFKA_4[api_key]
        for version in range(request_class(api_key).MIN_VERSION, first):
            assert first <= upstream_version(api_key, version, (first, last)) <= last

    @pytest.mark.parametrize("version", [0, 1, 2])
    @pytest.mark.parametrize(("served", "expected"), [((0, 13), 7), ((3, 13), 7), ((0, 5), 5), ((8, 13), 8)])
    def test_produce_in_old_formats_is_lifted_though_it_is_advertised(
        self, version: int, served: tuple[int, int], expected: int
    ) -> None:
        assert upstream_version(ApiKey.PRODUCE, version, served) == expected

    def test_lifting_needs_neither_topic_ids_nor_flexible_encoding(self) -> None:
        assert upstream_version(ApiKey.FETCH, 0, (4, 18)) < 12
        assert upstream_version(ApiKey.PRODUCE, 0, (0, 13)) < 9

    def test_what_is_newer_than_the_broker_is_refused(self) -> None:
        with pytest.raises(RemoteProtocolError, match="newer"):
            upstream_version(ApiKey.FETCH, 18, (0, 11))


class TestServed:
    def test_all_old_versions_and_no_newer_one_than_the_broker_has(self) -> None:
        served = served_to_clients({ApiKey.PRODUCE: (3, 11), ApiKey.FETCH: (4, 17), ApiKey.OFFSET_FETCH: (1, 8)})
        assert served == {ApiKey.PRODUCE: (0, 11), ApiKey.FETCH: (0, 17), ApiKey.OFFSET_FETCH: (0, 8)}

    def test_no_version_that_kproxy_can_not_read(self) -> None:
        served = served_to_clients({ApiKey.PRODUCE: (3, 99), ApiKey.METADATA: (0, 99)})
        assert served[ApiKey.PRODUCE][1] == request_class(ApiKey.PRODUCE).MAX_VERSION
        assert served[ApiKey.METADATA][1] == request_class(ApiKey.METADATA).MAX_VERSION

    def test_nothing_that_is_unknown_or_hidden(self) -> None:
        assert served_to_clients({9999: (0, 3)}) == {}
        assert served_to_clients(dict.fromkeys(HIDDEN, (0, 1))) == {}
        assert served_to_clients({}) == {}

    def test_what_brokers_keep_of_share_groups_is_hidden(self) -> None:
        assert {ApiKey.READ_SHARE_GROUP_STATE, ApiKey.WRITE_SHARE_GROUP_STATE} <= HIDDEN
        assert not {ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH, ApiKey.ALTER_SHARE_GROUP_OFFSETS} & HIDDEN

    def test_no_client_writes_markers_or_changes_the_controllers(self) -> None:
        assert {ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UNREGISTER_CONTROLLER} <= HIDDEN
        assert served_to_clients({}, transactions=True).keys() == TRANSACTIONS

    @pytest.mark.parametrize("transactions", [False, True])
    def test_the_newest_versions_for_brokers_among_themselves_and_two_phase_commit_are_not_told(
        self, transactions: bool
    ) -> None:
        broker = {ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5), ApiKey.INIT_PRODUCER_ID: (0, 6), ApiKey.END_TXN: (0, 4)}
        served = served_to_clients(broker, transactions=transactions)
        assert {key: served[key] for key in broker} == {
            ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
            ApiKey.INIT_PRODUCER_ID: (0, 5),
            ApiKey.END_TXN: (0, 4),
        }

    def test_where_the_broker_has_no_transactions_kproxy_has_them_in_all_versions(self) -> None:
        served = served_to_clients({}, transactions=True)
        assert served[ApiKey.END_TXN] == (0, 5)
        assert served[ApiKey.TXN_OFFSET_COMMIT] == (0, request_class(ApiKey.TXN_OFFSET_COMMIT).MAX_VERSION)
        assert served[ApiKey.ADD_PARTITIONS_TO_TXN] == (0, 3)
        assert served_to_clients({}) == {}

    def test_what_the_broker_serves_only_in_versions_that_kproxy_can_not_write_is_not_offered(self) -> None:
        newest = request_class(ApiKey.METADATA).MAX_VERSION
        assert served_to_clients({ApiKey.METADATA: (newest + 1, newest + 2)}) == {}

    @pytest.mark.parametrize("api_key", KAFKA_4)
    def test_each_version_that_is_offered_can_be_asked_for(self, api_key: ApiKey) -> None:
        first, last = served_to_clients(KAFKA_4)[api_key]
        assert first == 0
        for version in range(first, last + 1):
            low, high = KAFKA_4[api_key]
            assert low <= upstream_version(api_key, version, KAFKA_4[api_key]) <= high


def test_the_first_versions_of_kafka_4_are_those_that_the_fake_broker_serves() -> None:
    """The fake broker's are compared with Kafka's in tests/contract."""
    first = {key: api.versions[0] for key, api in APIS.items() if key != ApiKey.JOIN_GROUP}
    assert first == {key: FIRST_IN_KAFKA_4.get(key, 0) for key in first}

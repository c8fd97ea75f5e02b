"""Which versions kproxy serves to a client, and at which it asks a broker."""

from collections.abc import Mapping
from typing import Final

from kproxy.codec.messages import APIS, ApiKey, request_class
from kproxy.codec.version_choice import VersionRange
from kproxy.errors import RemoteProtocolError

#: The state of share groups is between brokers (KIP-932). Controllers' quorum is no client's business; operators can
#: ask the brokers for it.
HIDDEN: Final = frozenset(
    {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UNREGISTER_CONTROLLER,
    }
)

#: The requests whose responses hold record sets, and are long by these.
READS: Final = (ApiKey.FETCH, ApiKey.SHARE_FETCH)

#: The requests about transactions that name a transactional id (KIP-98).
TRANSACTIONS: Final = frozenset(
    {
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
    }
)

#: The requests of SASL (KIP-43, KIP-152).
LOGINS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})

#: What needs no right: a client has to ask before anything is known of it, and telemetry is about the client itself
#: (KIP-714).
FREE: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
)

#: What is answered here: markers could fence kproxy's own producer ids, and an abort may be of one of its transactions.
LOCAL: Final = frozenset({ApiKey.WRITE_TXN_MARKERS})

#: The newest version to tell clients of: later ones of AddPartitionsToTxn are for brokers (KIP-890), InitProducerId v6
#: is for two-phase commit (KIP-939).
_NEWEST_TOLD: Final[dict[int, int]] = {ApiKey.ADD_PARTITIONS_TO_TXN: 3, ApiKey.INIT_PRODUCER_ID: 5}

#: Where a client's version is too old for the broker, ask at this one if it is served: old enough to need no topic ids
#: and no flexible encoding, new enough to say all that a response of an old version needs.
_PREFERRED: Final[dict[int, int]] = {ApiKey.PRODUCE: 7, ApiKey.FETCH: 11, ApiKey.OFFSET_COMMIT: 2}


#: By API the first version that Kafka 4 serves, where it is not 0 (KIP-896): what is older is refused without kproxy.
FIRST_IN_KAFKA_4: Final[dict[int, int]] = {
    ApiKey.PRODUCE: 3,
    ApiKey.FETCH: 4,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 1,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.DELETE_TOPICS: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.DESCRIBE_ACLS: 1,
    ApiKey.CREATE_ACLS: 1,
    ApiKey.DELETE_ACLS: 1,
    ApiKey.DESCRIBE_CONFIGS: 1,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 1,
    ApiKey.DESCRIBE_LOG_DIRS: 1,
    ApiKey.CREATE_DELEGATION_TOKEN: 1,
    ApiKey.RENEW_DELEGATION_TOKEN: 1,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 1,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 1,
}


def upstream_version(api_key: int, version: int, served: VersionRange) -> int:
    """The version at which to ask a broker that serves ``served``: the client's own if it can be.

    RemoteProtocolError if the client's version is newer than the broker's newest.
    """
    first, last = served
    if version > last:
        raise RemoteProtocolError(f"API key {api_key} v{version} is newer than the broker's v{last}")
    # Produce v0-v2 are closed on by Kafka 4, though it advertises them for the sake of old librdkafka.
    if version >= first and not (api_key == ApiKey.PRODUCE and version < 3):
        return version
    return min(max(first, _PREFERRED.get(api_key, first)), last)


def served_to_clients(
    broker: Mapping[int, VersionRange], *, transactions: bool = False, logins: bool = False
) -> dict[int, VersionRange]:
    """The ranges to advertise: all that kproxy can read and the broker can be asked for, old versions included.

    ``transactions``: those of KIP-98 also where the broker has none, since kproxy serves them itself; ``logins``: those
    of SASL as kproxy serves them, whatever the broker does.
    """
    served = {}
    ranges = {key: (APIS[key][1], APIS[key][2]) for key in map(int, TRANSACTIONS)} if transactions else {}
    ranges.update(broker)
    if logins:
        ranges.update({key: (APIS[key][1], APIS[key][2]) for key in map(int, LOGINS)})
    for api_key, (first, last) in ranges.items():
        if api_key in HIDDEN:
            continue
        try:
            known = request_class(api_key)
        except RemoteProtocolError:
            continue
        top = min(known.MAX_VERSION, last, _NEWEST_TOLD.get(api_key, last))
        if top >= max(known.MIN_VERSION, first):
            served[api_key] = (known.MIN_VERSION, top)
    return served

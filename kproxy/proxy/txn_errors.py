"""Which error of a transaction each version of each request can carry, and what is sent in its place before.

Sources: the notes on versions in Kafka's message definitions (KIP-588 PRODUCER_FENCED, KIP-890 TRANSACTION_ABORTABLE),
``KafkaApis`` and ``ReplicaManager.appendRecordsWithTransactionVerification`` for the substitutes. Where Kafka would
send INVALID_TXN_STATE in place of TRANSACTION_ABORTABLE to a request for which clients treat it as fatal, this module
has an error that lets them abort and continue: UNKNOWN_PRODUCER_ID (KIP-360), for offsets UNKNOWN_MEMBER_ID (KIP-447).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kproxy.codec.messages import ApiKey, ErrorCode


class _Since(NamedTuple):
    """The first version that may carry an error, and what to say below it."""

    version: int
    before: ErrorCode


_NEVER = 1 << 15
_FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
_ABORT = ErrorCode.UNKNOWN_PRODUCER_ID
_RETRY = ErrorCode.NOT_ENOUGH_REPLICAS  # any client repeats the request, and asks nobody for a new leader first

_SINCE: Final[Mapping[tuple[ApiKey, ErrorCode], _Since]] = {
    (ApiKey.INIT_PRODUCER_ID, ErrorCode.PRODUCER_FENCED): _Since(4, _FENCED),
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.PRODUCER_FENCED): _Since(2, _FENCED),
    (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.PRODUCER_FENCED): _Since(2, _FENCED),
    (ApiKey.END_TXN, ErrorCode.PRODUCER_FENCED): _Since(2, _FENCED),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.PRODUCER_FENCED): _Since(_NEVER, _FENCED),
    (ApiKey.PRODUCE, ErrorCode.PRODUCER_FENCED): _Since(_NEVER, _FENCED),
    # a group's coordinator knows epochs only; Java's producer ends without a word of fencing at anything else
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.INVALID_PRODUCER_ID_MAPPING): _Since(_NEVER, _FENCED),
    (ApiKey.INIT_PRODUCER_ID, ErrorCode.TRANSACTION_ABORTABLE): _Since(5, ErrorCode.CONCURRENT_TRANSACTIONS),
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.TRANSACTION_ABORTABLE): _Since(5, _ABORT),
    (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.TRANSACTION_ABORTABLE): _Since(4, _ABORT),
    (ApiKey.END_TXN, ErrorCode.TRANSACTION_ABORTABLE): _Since(4, _ABORT),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.TRANSACTION_ABORTABLE): _Since(4, ErrorCode.UNKNOWN_MEMBER_ID),
    (ApiKey.PRODUCE, ErrorCode.TRANSACTION_ABORTABLE): _Since(11, ErrorCode.INVALID_TXN_STATE),
    # v0-v2 know nothing of members
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID): _Since(3, ErrorCode.INVALID_TXN_STATE),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION): _Since(3, ErrorCode.INVALID_TXN_STATE),
    # the epoch of a member (KIP-848) was a generation to producers before v6 (KIP-1319)
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH): _Since(6, ErrorCode.ILLEGAL_GENERATION),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.FENCED_INSTANCE_ID): _Since(3, ErrorCode.INVALID_TXN_STATE),
    (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.CONCURRENT_TRANSACTIONS): _Since(
        _NEVER, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ),
    # a leader has no coordinator's errors; from v12 on clients join by writing, and know the first
    (ApiKey.PRODUCE, ErrorCode.CONCURRENT_TRANSACTIONS): _Since(12, _RETRY),
    (ApiKey.PRODUCE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS): _Since(_NEVER, _RETRY),
    (ApiKey.PRODUCE, ErrorCode.COORDINATOR_NOT_AVAILABLE): _Since(_NEVER, _RETRY),
    (ApiKey.PRODUCE, ErrorCode.NOT_COORDINATOR): _Since(_NEVER, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ApiKey.PRODUCE, ErrorCode.KAFKA_STORAGE_ERROR): _Since(4, ErrorCode.NOT_LEADER_OR_FOLLOWER),
}


def wire_error(api_key: int, version: int, error_code: int) -> int:
    """The error code to tell a client that asked in this version."""
    try:
        key = (ApiKey(api_key), ErrorCode(error_code))
    except ValueError:
        return error_code  # a broker's, newer than this codec
    since = _SINCE.get(key)
    if since is None or version >= since.version:
        return error_code
    return wire_error(api_key, version, since.before)

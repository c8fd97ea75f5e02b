"""Guards of the requests that change topics, configurations and the cluster (``KafkaApis``, ``ControllerApis``)."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kproxy.codec._generated.alter_client_quotas import (
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from kproxy.codec._generated.alter_replica_log_dirs import (
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsResponseAlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult,
)
from kproxy.codec._generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResponseAlterUserScramCredentialsResult,
)
from kproxy.codec._generated.create_acls import CreateAclsResponse, CreateAclsResponseAclCreationResult
from kproxy.codec._generated.delete_acls import DeleteAclsResponse, DeleteAclsResponseDeleteAclsFilterResult
from kproxy.codec._generated.describe_configs import DescribeConfigsResponseDescribeConfigsResult
from kproxy.codec._generated.describe_log_dirs import DescribeLogDirsResponse
from kproxy.codec._generated.elect_leaders import ElectLeadersResponse
from kproxy.codec.messages import ErrorCode, Message
from kproxy.proxy.authorization.access import Access
from kproxy.proxy.authorization.acl_rules import CLUSTER_NAME, Operation, ResourceType
from kproxy.proxy.authorization.guards import Asked, Whole, on_topic
from kproxy.proxy.handlers.transaction_admin import marked
from kproxy.proxy.screening import Amend, Parts, Screened
from kproxy.proxy.topic_refusals import (
    no_change,
    no_deletion,
    no_election,
    no_incremental_change,
    no_partitions,
    no_topic,
    nothing_deleted,
    of_resource,
)

_TOPIC: Final = ResourceType.TOPIC
_CLUSTER: Final = ResourceType.CLUSTER
_REFUSED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
#: By Kafka's ``ConfigResource.Type``, whose configuration it is; that of all others is the cluster's.
_CONFIGURED: Final[Mapping[int, ResourceType]] = {2: _TOPIC, 32: ResourceType.GROUP}

#: Before, DescribeLogDirs had no error but those of directories.
_FIRST_LOG_DIRS_ERROR: Final = 3

_ALTERS = Asked(Operation.ALTER, _CLUSTER)
alters_cluster = Whole(_ALTERS)
describes_cluster = Whole(Asked(Operation.DESCRIBE, _CLUSTER))
describes_cluster_configs = Whole(Asked(Operation.DESCRIBE_CONFIGS, _CLUSTER))

# -- topics


def _create_error(access: Access, topic: Any) -> int:
    if access.sees(Operation.CREATE, _CLUSTER):
        return 0
    return access.error(Operation.CREATE, _TOPIC, topic.name)


def _configs_seen(access: Access) -> Amend:
    """Without DescribeConfigs the response does not show how new topics are configured (KIP-525)."""

    def change(answer: Any) -> None:
        for row in answer.topics:
            if not row.error_code and not access.sees(Operation.DESCRIBE_CONFIGS, _TOPIC, row.name):
                row.topic_config_error_code = _REFUSED
                row.num_partitions = row.replication_factor = -1
                row.configs = None

    return change


create_topics = Parts(_create_error, no_topic, amend=_configs_seen)
create_partitions = Parts(on_topic(Operation.ALTER), no_partitions, results="results")
delete_records = Parts(on_topic(Operation.DELETE), nothing_deleted)


def _delete_error(access: Access, topic: Any) -> int:
    if isinstance(topic, str):
        return access.error(Operation.DELETE, _TOPIC, topic)
    return access.topic_error(Operation.DELETE, topic)


delete_topics = Parts(_delete_error, no_deletion, parts=("topics", "topic_names"), results="responses")

# -- configurations


def _configs(operation: Operation, refusal: Callable[[Any, int], object], results: str) -> Parts:
    def error(access: Access, item: Any) -> int:
        type_ = _CONFIGURED.get(item.resource_type, _CLUSTER)
        return access.error(operation, type_, CLUSTER_NAME if type_ is _CLUSTER else item.resource_name)

    return Parts(error, refusal, parts=("resources",), results=results)


describe_configs = _configs(
    Operation.DESCRIBE_CONFIGS, of_resource(DescribeConfigsResponseDescribeConfigsResult), "results"
)
alter_configs = _configs(Operation.ALTER_CONFIGS, no_change, "responses")
incremental_alter_configs = _configs(Operation.ALTER_CONFIGS, no_incremental_change, "responses")

# -- the cluster


def _no_acls(request: Any, version: int, error: int) -> Message:
    return CreateAclsResponse(results=[CreateAclsResponseAclCreationResult(error) for _ in request.creations])


def _no_deletions(request: Any, version: int, error: int) -> Message:
    return DeleteAclsResponse(filter_results=[DeleteAclsResponseDeleteAclsFilterResult(error) for _ in request.filters])


def _no_quotas(request: Any, version: int, error: int) -> Message:
    entries = [
        AlterClientQuotasResponseEntryData(
            error,
            None,
            [AlterClientQuotasResponseEntityData(each.entity_type, each.entity_name) for each in entry.entity],
        )
        for entry in request.entries
    ]
    return AlterClientQuotasResponse(entries=entries)


def _no_credentials(request: Any, version: int, error: int) -> Message:
    names = dict.fromkeys(each.name for each in [*request.deletions, *request.upsertions])
    row = AlterUserScramCredentialsResponseAlterUserScramCredentialsResult
    return AlterUserScramCredentialsResponse(results=[row(name, error) for name in names])


def _no_moves(request: Any, version: int, error: int) -> Message:
    topics = [
        AlterReplicaLogDirsResponseAlterReplicaLogDirTopicResult(
            topic.name,
            [AlterReplicaLogDirsResponseAlterReplicaLogDirPartitionResult(index, error) for index in topic.partitions],
        )
        for directory in request.dirs
        for topic in directory.topics
    ]
    return AlterReplicaLogDirsResponse(results=topics)


def _no_elections(request: Any, version: int, error: int) -> Message:
    topics = [no_election(topic, error) for topic in request.topic_partitions or ()]
    return ElectLeadersResponse(error_code=error if version >= 1 else 0, replica_election_results=topics)


def _no_log_dirs(request: Any, version: int, error: int) -> Message:
    return DescribeLogDirsResponse(error_code=error if version >= _FIRST_LOG_DIRS_ERROR else 0)


create_acls = Whole(_ALTERS, refusal=_no_acls)
delete_acls = Whole(_ALTERS, refusal=_no_deletions)
alter_client_quotas = Whole(Asked(Operation.ALTER_CONFIGS, _CLUSTER), refusal=_no_quotas)
alter_user_scram_credentials = Whole(_ALTERS, refusal=_no_credentials)
alter_replica_log_dirs = Whole(_ALTERS, refusal=_no_moves)
elect_leaders = Whole(_ALTERS, refusal=_no_elections)
describe_log_dirs = Whole(Asked(Operation.DESCRIBE, _CLUSTER), refusal=_no_log_dirs)
write_txn_markers = Whole(
    Asked(Operation.CLUSTER_ACTION, _CLUSTER), refusal=lambda request, _, error: marked(request, ErrorCode(error))
)


def describe_cluster(access: Access, request: object, version: int) -> Screened:
    """Allowed for all clients; the response shows the client's own operations."""

    def change(answer: Any) -> None:
        answer.cluster_authorized_operations = access.authorized(answer.cluster_authorized_operations, _CLUSTER)

    return Screened(amend=change)

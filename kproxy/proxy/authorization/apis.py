"""The guard of each API, by Kafka's protocol guide and ``KafkaApis``; an API without one is refused."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kproxy.codec.messages import ApiKey
from kproxy.proxy.authorization import admin_guards as admin
from kproxy.proxy.authorization import described_groups as described
from kproxy.proxy.authorization import group_guards as groups
from kproxy.proxy.authorization import share_group_guards as shares
from kproxy.proxy.authorization import topic_guards as topics
from kproxy.proxy.authorization import transaction_guards as transactions
from kproxy.proxy.authorization.guards import Guard

GUARDS: Final[Mapping[int, Guard]] = MappingProxyType(
    {
        ApiKey.PRODUCE: topics.produce,
        ApiKey.FETCH: topics.fetch,
        ApiKey.LIST_OFFSETS: topics.list_offsets,
        ApiKey.METADATA: topics.metadata,
        ApiKey.OFFSET_COMMIT: groups.offset_commit,
        ApiKey.OFFSET_FETCH: groups.offset_fetch,
        ApiKey.FIND_COORDINATOR: groups.find_coordinator,
        ApiKey.JOIN_GROUP: groups.join_group,
        ApiKey.HEARTBEAT: groups.member,
        ApiKey.LEAVE_GROUP: groups.member,
        ApiKey.SYNC_GROUP: groups.member,
        ApiKey.DESCRIBE_GROUPS: described.describe_groups,
        ApiKey.LIST_GROUPS: groups.list_groups,
        ApiKey.CREATE_TOPICS: admin.create_topics,
        ApiKey.DELETE_TOPICS: admin.delete_topics,
        ApiKey.DELETE_RECORDS: admin.delete_records,
        ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: topics.offset_for_leader_epoch,
        ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
        ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets,
        ApiKey.END_TXN: transactions.end_txn,
        ApiKey.WRITE_TXN_MARKERS: admin.write_txn_markers,
        ApiKey.TXN_OFFSET_COMMIT: transactions.txn_offset_commit,
        ApiKey.DESCRIBE_ACLS: admin.describes_cluster,
        ApiKey.CREATE_ACLS: admin.create_acls,
        ApiKey.DELETE_ACLS: admin.delete_acls,
        ApiKey.DESCRIBE_CONFIGS: admin.describe_configs,
        ApiKey.ALTER_CONFIGS: admin.alter_configs,
        ApiKey.ALTER_REPLICA_LOG_DIRS: admin.alter_replica_log_dirs,
        ApiKey.DESCRIBE_LOG_DIRS: admin.describe_log_dirs,
        ApiKey.CREATE_PARTITIONS: admin.create_partitions,
        # a token that a broker gives is for kproxy's own principal there, not for the client's here
        ApiKey.CREATE_DELEGATION_TOKEN: admin.alters_cluster,
        ApiKey.RENEW_DELEGATION_TOKEN: admin.alters_cluster,
        ApiKey.EXPIRE_DELEGATION_TOKEN: admin.alters_cluster,
        ApiKey.DESCRIBE_DELEGATION_TOKEN: admin.alters_cluster,
        ApiKey.DELETE_GROUPS: groups.delete_groups,
        ApiKey.ELECT_LEADERS: admin.elect_leaders,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: admin.incremental_alter_configs,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: admin.alters_cluster,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: admin.describes_cluster,
        ApiKey.OFFSET_DELETE: groups.offset_delete,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: admin.describes_cluster_configs,
        ApiKey.ALTER_CLIENT_QUOTAS: admin.alter_client_quotas,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: admin.describes_cluster,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: admin.alter_user_scram_credentials,
        ApiKey.DESCRIBE_QUORUM: admin.describes_cluster,
        ApiKey.UPDATE_FEATURES: admin.alters_cluster,
        ApiKey.DESCRIBE_CLUSTER: admin.describe_cluster,
        ApiKey.DESCRIBE_PRODUCERS: topics.describe_producers,
        ApiKey.UNREGISTER_BROKER: admin.alters_cluster,
        ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
        ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.subscribing_member,
        ApiKey.CONSUMER_GROUP_DESCRIBE: described.consumer_group_describe,
        ApiKey.LIST_CONFIG_RESOURCES: admin.describes_cluster_configs,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.describe_topic_partitions,
        ApiKey.STREAMS_GROUP_HEARTBEAT: groups.streams_member,
        ApiKey.STREAMS_GROUP_DESCRIBE: described.streams_group_describe,
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: groups.member,
        ApiKey.SHARE_GROUP_HEARTBEAT: groups.subscribing_member,
        ApiKey.SHARE_GROUP_DESCRIBE: described.share_group_describe,
        ApiKey.SHARE_FETCH: shares.fetch,
        ApiKey.SHARE_ACKNOWLEDGE: shares.acknowledge,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: shares.describe_offsets,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: shares.alter_offsets,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: shares.delete_offsets,
    }
)

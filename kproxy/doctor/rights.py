"""Checks of kproxy's rights, as docs/semantics.md lists them; a cluster without ACLs grants all."""

from collections.abc import Iterator
from typing import Final

from kproxy.codec.error_codes import error_name
from kproxy.codec.messages import ErrorCode
from kproxy.doctor.examined import NOT_TOLD, Examined, has
from kproxy.doctor.findings import Finding, fail, listed, ok, skipped, warn
from kproxy.doctor.topic_checks import plans
from kproxy.net.txn.log_topic import TOPIC as TRANSACTION_LOG
from kproxy.proxy.authorization.acl_rules import Operation

_REFUSED: Final = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_OWN_TOPIC: Final = (Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)


def markers(examined: Examined) -> Iterator[Finding]:
    """ClusterAction or Alter on the cluster: WriteTxnMarkers, which fences a producer id."""
    rights = examined.cluster_rights
    if rights == NOT_TOLD:
        yield skipped("the brokers do not report rights (Kafka 2.3 and later do)")
    elif not rights:
        yield skipped("kproxy may not Describe the cluster, so its rights are unknown", "grant Describe on the cluster")
    elif has(rights, Operation.CLUSTER_ACTION) or has(rights, Operation.ALTER):
        yield ok("markers may be written: ClusterAction or Alter on the cluster is granted")
    else:
        yield warn(
            "neither ClusterAction nor Alter on the cluster is granted: kproxy can't fence, it can only wait",
            "grant ClusterAction on the cluster to kproxy's principal; without it a request that is stuck for long may "
            "become a duplicate",
        )


def producer_ids(examined: Examined) -> Iterator[Finding]:
    """InitProducerId, tried: Write on any topic, or IdempotentWrite on the cluster."""
    error = examined.producer_id_error
    if not examined.config.idempotence_enable:
        yield ok("not needed: idempotence.enable is false")
    elif error is None:
        yield skipped("InitProducerId could not be asked")
    elif not error:
        yield ok("brokers give producer ids")
    elif error in _REFUSED:
        yield fail(
            f"brokers give kproxy no producer ids: {error_name(error)}",
            "grant IdempotentWrite on the cluster, or Write on a topic, to kproxy's principal",
        )
    else:
        yield warn(f"brokers gave no producer id just now: {error_name(error)}", "look at the brokers' logs")


def own_topics(examined: Examined) -> Iterator[Finding]:
    """What kproxy does with its own topics."""
    if not examined.reached:
        yield skipped("no broker answers")
        return
    complete = True
    for plan in plans(examined.config):
        topic = examined.topics.get(plan.name)
        if topic is None:
            if examined.cluster_rights <= 0:
                complete = False
                yield skipped(f"{plan.name} is not there, and the brokers do not report the right to create it")
            elif not has(examined.cluster_rights, Operation.CREATE):
                complete = False
                yield warn(
                    f"{plan.name} is not there, and kproxy may not create topics in general",
                    f"grant {plan.rights} on topic {plan.name}, or Create on the cluster",
                )
            continue
        rights = topic.topic_authorized_operations
        if rights == NOT_TOLD:
            complete = False
            yield skipped(f"the brokers do not report rights on {plan.name}")
            continue
        wanted = (*_OWN_TOPIC, Operation.DELETE) if plan.name == TRANSACTION_LOG else _OWN_TOPIC
        missing = [operation.value for operation in wanted if not has(rights, operation)]
        if missing:
            complete = False
            finding = warn if plan.optional else fail
            yield finding(f"not granted on {plan.name}: {', '.join(missing)}", f"{plan.refused}; grant {plan.rights}")
    if complete:
        yield ok("nothing is missing on kproxy's own topics")


def reading(examined: Examined) -> Iterator[Finding]:
    """Read on the topics of users: DescribeProducers, and reading back unconfirmed batches."""
    known = {
        name: examined.topics[name].topic_authorized_operations
        for name in examined.users_topics()
        if examined.topics[name].topic_authorized_operations != NOT_TOLD
    }
    closed = sorted(name for name, rights in known.items() if not has(rights, Operation.READ))
    if closed:
        yield warn(
            f"{len(closed)} of {len(known)} topics may not be read by kproxy: {listed(closed)}",
            "grant Read on topics that clients write: else what is in doubt can't be compared, and is written again",
        )
    elif known:
        yield ok(f"all {len(known)} topics of users may be read")
    else:
        yield skipped("no topics of users are seen, or the brokers do not report rights on them")

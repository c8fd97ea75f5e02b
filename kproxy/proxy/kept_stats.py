"""Counters of producers whose numbers are kept."""

# ruff: noqa: RUF009 - these functions make a dataclasses.field, not a shared mutable default.

from dataclasses import dataclass

from kproxy.proxy.metric_fields import counter, counters


@dataclass(slots=True)
class KeptStats:
    """Errors about the numbers of idempotent producers, and what they were."""

    repairs: dict[str, int] = counters(
        "Errors of brokers about the sequence or epoch of an idempotent producer, by reason. forgotten, "
        "out_of_order, epoch_raised: the batch was sent again; sent_alone: no error: it, or another of its request, "
        "was repeated; written: it was in the log; found_older: it was there under an epoch that its client has "
        "raised since; waits_for_others: it came before its predecessors; outdated: the client is asked to send it "
        "again; old_epoch: its client has a newer one; lost: the log has lost acknowledged records; unsettled: the "
        "client received the error; unreachable: it asks again.",
        "reason",
        name="sequence_repairs",
        expected=("forgotten", "lost", "out_of_order"),
    )
    lost_records: int = counter(
        "Acknowledged records that a log was found to have lost when their producer wrote again: an unclean leader "
        "election, or a recreated topic. At most so many: others' records between them count, too."
    )
    left_out: int = counter("Late batches that their idempotent producer had given up, refused.", "sequences_left_out")

"""Counters of batches in flight to brokers."""

# ruff: noqa: RUF009 - these functions make a dataclasses.field, not a shared mutable default.

from dataclasses import dataclass

from kproxy.proxy.metric_fields import counter, counters, gauge, moment


@dataclass(slots=True)
class ProduceStats:
    """Batches that kproxy stamps, converts and sends."""

    batches_stamped: int = counter("Batches stamped.")
    records_stamped: int = counter("Records in stamped batches.")
    batches_converted: dict[tuple[str, int], int] = counters(
        "Batches converted from (up) or to (down) an old format.", "direction", "magic"
    )
    records_converted: dict[tuple[str, int], int] = counters(
        "Records converted from (up) or to (down) an old format.", "direction", "magic"
    )
    producer_ids_active: int = gauge("Producer ids in use.")
    sends_in_flight: int = gauge("Stamped batches in flight.", "batches_in_flight")
    oldest_unacknowledged: float | None = moment(
        "Age of the oldest batch without an outcome, 0 without one; if it grows, check the leader of its partition.",
        "oldest_unacknowledged_seconds",
    )
    requests_timed_out: int = counter(
        "Produce requests answered REQUEST_TIMED_OUT while kproxy keeps sending; if it rises, brokers are slower than "
        "the clients' time-outs."
    )
    epoch_bumps: int = counter("Producer epochs that kproxy abandoned.")
    resends: dict[str, int] = counters("Batches sent again.", "reason")

    def count_converted(self, direction: str, magic: int, batches: int, records: int) -> None:
        """Add to the conversion counters."""
        key = (direction, magic)
        self.batches_converted[key] = self.batches_converted.get(key, 0) + batches
        self.records_converted[key] = self.records_converted.get(key, 0) + records

"""What a source reads: its partitions as they are now, and the offsets that its options mean."""

import logging
from collections.abc import Collection
from typing import Final

from kproxy.spark.kafka_cluster import EARLIEST, INTERNAL_TOPICS, LATEST, KafkaCluster, TopicPartition
from kproxy.spark.offsets import Offsets
from kproxy.spark.read_options import Bound, ReadOptions
from kproxy.spark.spark_errors import DataLost, OptionError

_LOG: Final = logging.getLogger(__name__)


class Planner:
    """Asks a cluster for one source; the cluster is closed by the caller that opened it."""

    def __init__(self, options: ReadOptions, cluster: KafkaCluster) -> None:
        self._options = options
        self._cluster = cluster

    def partitions(self, *, gone: Collection[TopicPartition] = ()) -> list[TopicPartition]:
        """The partitions there are now, sorted. OptionError if a topic is named that does not exist.

        ``gone``: partitions that were there, so that their topics may be missing by now.
        """
        topics, pattern, assigned = self._options.subscription
        if pattern is not None:
            known = self._cluster.topics().items()
            users = {name: count for name, count in known if not name.startswith(INTERNAL_TOPICS)}
            found = {name: count for name, count in users.items() if pattern.fullmatch(name)}
        else:
            named = topics or {each.topic for each in assigned}
            found = self._cluster.partitions(named)
            missing = named - found.keys() - {each.topic for each in gone}
            if missing:
                option = "assign" if assigned else "subscribe"
                raise OptionError(f"topic {sorted(missing)[0]!r} does not exist: create it, or correct {option}")
        there = {TopicPartition(name, index) for name, count in found.items() for index in range(count)}
        if assigned:
            absent = assigned - there - set(gone)
            if absent:
                raise OptionError(f"assign: partition {sorted(absent)[0]} does not exist")
            there &= assigned
        return sorted(there)

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The oldest offsets. Raises KafkaError."""
        found = self._cluster.offsets(dict.fromkeys(partitions, EARLIEST))
        return {each: found[each] or 0 for each in partitions}

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Where reading ends now: the last stable offset, or the high watermark if all is read. Raises KafkaError."""
        committed = self._options.committed and not self._options.as_batches
        found = self._cluster.offsets(dict.fromkeys(partitions, LATEST), committed=committed)
        return {each: found[each] or 0 for each in partitions}

    def stable(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The last stable offsets. Raises KafkaError."""
        found = self._cluster.offsets(dict.fromkeys(partitions, LATEST), committed=True)
        return {each: found[each] or 0 for each in partitions}

    def resolved(self, bound: Bound, partitions: Collection[TopicPartition]) -> Offsets:
        """What a bound means for each partition; the latest where no record is as young as a time that is asked for.

        Raises OptionError if it names other partitions than these, or if a starting time is too young and the options
        have that as an error; and KafkaError.
        """
        if bound.by_partition is None:
            wanted = dict.fromkeys(partitions, LATEST if bound.everywhere is None else bound.everywhere)
        else:
            _check_same(bound.name, bound.by_partition.keys(), partitions)
            wanted = dict(bound.by_partition)
        if not bound.is_time:
            fixed = {each: offset for each, offset in wanted.items() if offset >= 0}
            earliest = self.earliest([each for each, offset in wanted.items() if offset == EARLIEST])
            latest = self.latest([each for each, offset in wanted.items() if offset == LATEST])
            return {**fixed, **earliest, **latest}
        committed = self._options.committed and not self._options.as_batches
        found = self._cluster.offsets(wanted, committed=committed)
        beyond = sorted(each for each, offset in found.items() if offset is None)
        if beyond and bound.name.startswith("starting") and self._options.fails_beyond_newest:
            way_out = "startingOffsetsByTimestampStrategy latest begins at the end there"
            raise OptionError(f"{bound.name}: {beyond[0]} has no record that is as young as that; {way_out}")
        latest = self.latest(beyond)
        return {each: latest[each] if offset is None else offset for each, offset in found.items()}

    def check_order(self, start: Offsets, end: Offsets) -> None:
        """Reports loss where a partition ends before it starts, as a recreated one does. Raises DataLost."""
        for each in sorted(start.keys() & end.keys()):
            if end[each] < start[each]:
                self.lost(f"{each} ends at offset {end[each]}, though offset {start[each]} should come next")

    def lost(self, what: str) -> None:
        """Reports that records were deleted. Raises DataLost, unless the options say to continue."""
        if self._options.fail_on_data_loss:
            raise DataLost(f"{what}; set failOnDataLoss to false to continue without the deleted records")
        _LOG.warning("%s", what)


def _check_same(name: str, given: Collection[TopicPartition], there: Collection[TopicPartition]) -> None:
    missing, surplus = set(there) - set(given), set(given) - set(there)
    if missing:
        raise OptionError(f"{name}: {sorted(missing)[0]} is missing; all partitions must be given, -2 is the earliest")
    if surplus:
        raise OptionError(f"{name}: {sorted(surplus)[0]} is given, which is not read or does not exist")

"""The owner as which a driver runs a query, remembered for the processes that Spark starts for its micro-batches."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from kproxy.client import OwnerId
from kproxy.spark.sink_options import SinkOptions


class OwnerMemory:
    """One query's owner, in a file.

    Spark makes a writer in a new process for each micro-batch. To take the id again each time would let an older query
    fence the newer one, back and forth. So the first process records that the query has taken the id, in a directory
    that lives as long as the driver. Each query has a file of its own: of two queries under one id in one driver the
    older one keeps its owner, and so learns that it is fenced.
    """

    def __init__(self, options: SinkOptions, directory: Path) -> None:
        query = "\0".join((options.transactional_id, options.checkpoint, options.query_name))
        self._file = directory / f"kproxy-{hashlib.sha256(query.encode()).hexdigest()[:32]}.json"

    def owner(self, take: Callable[[], OwnerId]) -> OwnerId:
        """The recorded owner; without one that of ``take``, which is recorded. OSError if it can't be written."""
        try:
            known = json.loads(self._file.read_text(encoding="utf-8"))
            return OwnerId(known["producer_id"], known["producer_epoch"])
        except FileNotFoundError:
            pass
        owner = take()
        written = self._file.with_name(f"{self._file.name}.{uuid4().hex}")
        record = {"producer_id": owner.producer_id, "producer_epoch": owner.producer_epoch}
        written.write_text(json.dumps(record), encoding="utf-8")
        written.rename(self._file)
        return owner

    def forget(self) -> None:
        """Forgets the owner: the query is fenced and ends, and if it is started again it takes the id again."""
        self._file.unlink(missing_ok=True)

"""The reader beside the job: looks all the time at all partitions of the outputs, as a reader of committed data."""

import threading
from array import array
from collections.abc import Sequence
from typing import Final

from kproxy.codec.batch import iter_records, read_header
from kproxy.testing.cluster_client import ClusterClient
from verification.aborted import Aborted
from verification.spark_proof.verdict import Seen, TopicPartition

_ROOMY: Final = 1 << 26
_COMMITTED: Final = 1
_PAUSE_SECONDS: Final = 0.1
_REQUEST_SECONDS: Final = 10.0


class Reader:
    """One reader of some partitions, from their start; keeps the numbers (the records' keys) and what it saw when."""

    def __init__(self, bootstrap: str, places: Sequence[TopicPartition], *, committed: bool = True) -> None:
        """``bootstrap`` is a kproxy's, or the brokers'."""
        self.numbers = {place: array("q") for place in places}
        self.seen: list[Seen] = []
        self.looks = 0
        self._bootstrap = bootstrap
        self._isolation_level = int(committed) * _COMMITTED
        self._offsets = dict.fromkeys(places, 0)

    def look(self) -> None:
        """Reads each partition to its present end. OSError or RuntimeError if that fails now."""
        with ClusterClient(self._bootstrap, client_id="proof-reader", timeout=_REQUEST_SECONDS) as client:
            for place in self.numbers:
                while self._read(client, place):
                    pass
                self.seen.append(Seen(place, len(self.numbers[place])))
        self.looks += 1

    def _read(self, client: ClusterClient, place: TopicPartition) -> bool:
        """One Fetch; False if there was nothing more."""
        at = self._offsets[place]
        answer = client.fetch(*place, at, isolation_level=self._isolation_level).responses[0].partitions[0]
        if answer.error_code:
            raise RuntimeError(f"fetch of {place.topic}-{place.partition} at {at}: error {answer.error_code}")
        aborted = Aborted(answer.aborted_transactions)
        data = memoryview(bytes(answer.records or b""))
        position, begun = 0, at
        while position + 61 <= len(data):
            header = read_header(data, position)
            if position + header.size > len(data):
                break
            batch = data[position : position + header.size]
            if not aborted.hides(header, batch):
                rows = iter_records(batch, max_decompressed_bytes=_ROOMY)
                self.numbers[place].extend(int(record.key or b"-1") for record in rows if record.offset >= begun)
            at = max(at, header.base_offset + header.last_offset_delta + 1)
            position += header.size
        self._offsets[place] = at
        return at > begun


class Beside:
    """A reader in a thread of its own, for the length of a ``with`` block."""

    def __init__(self, reader: Reader) -> None:
        """Nothing is read before the block begins."""
        self._reader = reader
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")
        self._bug: BaseException | None = None

    def __enter__(self) -> Reader:
        self._thread.start()
        return self._reader

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._bug is not None:
            raise self._bug

    def _run(self) -> None:
        while not self._ended.wait(_PAUSE_SECONDS):
            try:
                self._reader.look()
            except (OSError, RuntimeError):
                continue  # what it asks is being killed
            except BaseException as bug:
                self._bug = bug
                return


def read_to_end(bootstrap: str, places: Sequence[TopicPartition], *, committed: bool) -> Reader:
    """A reader that has read all that there is. OSError, RuntimeError."""
    reader = Reader(bootstrap, places, committed=committed)
    reader.look()
    return reader


def check_decided(bootstrap: str, places: Sequence[TopicPartition]) -> None:
    """RuntimeError, or OSError, while readers of committed data are not shown all of each partition.

    A broker answers a commit before it has written the markers that let readers see what was committed.
    """
    with ClusterClient(bootstrap, client_id="proof-reader", timeout=_REQUEST_SECONDS) as client:
        for place in places:
            stable, end = client.offset(*place, isolation_level=_COMMITTED), client.offset(*place)
            if stable < end:
                raise RuntimeError(f"{place.topic}-{place.partition} is undecided from offset {stable} to {end}")

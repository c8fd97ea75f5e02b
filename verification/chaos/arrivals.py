"""Produce requests as they arrived at the relays in front of kproxy, and the responses: to examine an anomaly."""

import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kproxy.budget import RequestBudget
from kproxy.codec.batch import iter_records
from kproxy.codec.error_codes import error_name
from kproxy.codec.header import decode_request_header
from kproxy.codec.message_formats import to_v2
from kproxy.codec.messages import ApiKey
from kproxy.codec.produce_layout import walk_request, walk_response
from kproxy.errors import RemoteProtocolError
from kproxy.testing.relay import Frame
from verification.chaos.recorder import now

_ROW: Final = struct.Struct(">qii??i")
_FIRST_V2: Final = 3
_CORRELATION_ID: Final = struct.Struct(">i")
_MOST: Final = 1 << 26


class Arrivals:
    """Writes frames to ``produces.bin`` as they come; ``explain`` makes text of them.

    :param directory: must not have one yet.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "produces.bin"
        self._log = directory / "produces.log"
        self._file = self._path.open("xb")

    def take(self, relay: int, frame: Frame) -> None:
        """Record a frame that arrived at a relay, unless it is of another API."""
        if frame.api_key == ApiKey.PRODUCE:
            row = now(), relay, frame.connection, frame.is_answer, frame.dropped, len(frame.data)
            self._file.write(_ROW.pack(*row) + frame.data)

    def explain(self) -> None:
        """Write a line for each frame to ``produces.log``: when, over which connection, and what it says."""
        self._file.flush()
        with self._log.open("w", encoding="utf-8") as log:
            log.writelines(f"{line}\n" for line in self._lines(self._path.read_bytes()))

    def _lines(self, data: bytes) -> Iterator[str]:
        versions: dict[tuple[int, int, int], int] = {}
        position = 0
        while position < len(data):
            time, relay, connection, is_answer, dropped, size = _ROW.unpack_from(data, position)
            position += _ROW.size
            frame = data[position : position + size]
            position += size
            where = f"[{time}] relay {relay} connection {connection}"
            try:
                if is_answer:
                    (number,) = _CORRELATION_ID.unpack_from(frame, 4)
                    text = _response(frame, versions[relay, connection, number])
                else:
                    header = decode_request_header(memoryview(frame)[4:])
                    number = header.correlation_id
                    versions[relay, connection, number] = header.api_version
                    records = _request(frame, 4 + header.size, header.api_version)
                    text = f"{header.client_id} v{header.api_version}: {records}"
            except (RemoteProtocolError, KeyError) as error:
                number, text = -1, f"unreadable: {error!r}"
            yield f"{where} {'response' if is_answer else 'request'} {number}{' (dropped)' if dropped else ''}: {text}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _request(frame: bytes, body: int, version: int) -> str:
    layout = walk_request(frame, body, version)
    parts = []
    for place in layout.partitions:
        values = " ".join(_values(frame[max(place.start, 0) : place.end], version))
        parts.append(f"{place.topic!r}-{place.partition} [{values}]")
    return f"acks {layout.acks}, " + ", ".join(parts)


def _values(data: bytes, version: int) -> Iterator[str]:
    batches = [memoryview(data)]
    if version < _FIRST_V2:
        budget = RequestBudget(0, _MOST, _MOST)
        batches = [memoryview(one.data) for one in to_v2(data, arrival_ms=0, max_batch_bytes=_MOST, budget=budget)]
    for batch in batches:
        for record in iter_records(batch, max_decompressed_bytes=_MOST):
            yield (record.value or b"").decode("utf-8", "replace")


def _response(frame: bytes, version: int) -> str:
    results = walk_response(frame, version).items()
    return ", ".join(f"{topic!r}-{index} {error_name(error)} at {base}" for (topic, index), (error, base, _) in results)

"""What a request costs kproxy grows as its size does: in each API and version, each array of a request grows alone.

Steps are Python's own (one for each instruction), in kproxy's code only, so neither the machine nor its load changes
them. What a single call into a C library costs is not seen: ``make hostile`` measures the time of long requests. Bytes
are the most that the whole process held at one time beyond what it held before, the fake broker and the client, too.
"""

import importlib
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias

import pytest
import trio

import kproxy
from kproxy.budget import unbounded
from kproxy.codec._generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproxy.codec._generated.metadata import MetadataRequest
from kproxy.codec.batch import build_batch
from kproxy.codec.header import encode_request
from kproxy.codec.messages import Message
from tests.net.harness import proxied, records
from tools.codec_tables import Field
from verification.hostile.samples import TABLES

pytestmark = pytest.mark.long

#: A field of a request, one of the struct in that field, and so on.
Where: TypeAlias = tuple[str, ...]

_OURS: Final = str(Path(kproxy.__file__).parent)
_NOT_OURS: Final = str(Path(_OURS, "testing"))
#: So many elements, where steps are counted, and where bytes are: buffers take 300 KB of these in any case.
_FEW: Final = (40, 80, 160)
_MANY: Final = (500, 1000, 2000)
_MOST_GROWTH: Final = 2.3
_SERVED: Final = 34
#: A collection of garbage may come at any time.
_NOISE_BYTES: Final = 64 << 10
_PATIENCE_S: Final = 30.0
_SIMPLE: Final[dict[str, Any]] = {"bool": False, "float64": 1.0, "uuid": bytes(16), "bytes": b"data"}
_NUMBERS: Final = {"timeout": 10, "max_wait": 10, "max_bytes": 1 << 20, "acks": -1, "replica_id": -1}


class Growing:
    """A well-formed request of which one array has as many elements as is asked for; all others have one."""

    def __init__(self, name: str, version: int) -> None:
        """``name``: of the request."""
        self._name, self._version, self._table = name, version, TABLES[name][1]
        self._module = importlib.import_module(f"kproxy.codec._generated.{TABLES[name][0]}")

    def arrays(self, struct: str = "", above: Where = ()) -> Iterator[Where]:
        """The arrays that the request has; the records of a batch count as one."""
        for field in self._fields(struct or self._name):
            where = (*above, field.attribute)
            if field.array or field.base == "records":
                yield where
            if self._is_struct(field):
                yield from self.arrays(field.base, where)

    def message(self, where: Where, size: int) -> Message:
        """The request whose array ``where`` has ``size`` elements, each with a name of its own."""
        message: Message = self._struct(self._name, where, size, 0)
        return message

    def _fields(self, struct: str) -> list[Field]:
        version = self._version
        return [one for one in self._table.struct(struct).fields if one.versions[0] <= version <= one.versions[1]]

    def _is_struct(self, field: Field) -> bool:
        return any(struct.name == field.base for struct in self._table.structs)

    def _struct(self, struct: str, where: Where, size: int, number: int) -> Any:
        values: dict[str, Any] = {}
        for field in self._fields(struct):
            inner = where[1:] if where[:1] == (field.attribute,) else ("",)
            if not field.array:
                values[field.attribute] = self._value(field, inner, size, number)
            else:
                count = range(size) if not inner else range(1)
                values[field.attribute] = [self._value(field, inner or ("",), size, number + one) for one in count]
        return getattr(self._module, self._table.class_name(struct))(**values)

    def _value(self, field: Field, where: Where, size: int, number: int) -> Any:
        if field.base == "records":
            return bytes(build_batch(records(*(b"x%d" % one for one in range(size if not where else 1)))))
        if field.base == "string":
            return f"{field.attribute[:9]}{number}"
        if field.base in _SIMPLE:
            return _SIMPLE[field.base]
        if self._is_struct(field):
            return self._struct(field.base, where, size, number)
        return next((known for part, known in _NUMBERS.items() if part in field.attribute), 0)


class Steps:
    """Counts the instructions that kproxy's code takes in this thread."""

    def __init__(self) -> None:
        """None yet."""
        self.count = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Counts what is begun in the block."""
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, _: str, __: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(_OURS) or name.startswith(_NOT_OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, _: FrameType, event: str, __: object) -> Any:
        self.count += event == "opcode"
        return self._step


async def ask(frame: bytes, port: int) -> bytes:
    """The response to a request, or nothing if the connection was closed."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        with trio.fail_after(_PATIENCE_S):
            await stream.send_all(frame)
            data = bytearray()
            while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
                more = await stream.receive_some()
                if not more:
                    break
                data += more
    return bytes(data)


async def steps_of(frame: bytes, port: int) -> int:
    """How many instructions of kproxy a request takes."""
    steps = Steps()
    with steps.counting():
        await ask(frame, port)
    return steps.count


async def bytes_of(frame: bytes, port: int) -> int:
    """How many bytes are taken at one time for a request."""
    tracemalloc.start()
    try:
        await ask(frame, port)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def growth(
    name: str, version: int, sizes: Sequence[int], cost_of: Callable[[bytes, int], Awaitable[int]]
) -> dict[Where, list[int]]:
    """By array of a request, what it costs with so many elements; of a request that is not served by its first one."""
    request, costs = Growing(name, version), dict[Where, list[int]]()
    async with proxied() as proxy:
        served = await ranges(proxy.port)
        low, high = served.get(TABLES[name][1].api_key, (0, -1))
        most = None if low <= version <= high else 1
        for where in islice(request.arrays(), most):
            frames = [encode_request(request.message(where, size), version, 1, "linear") for size in (1, *sizes)]
            await ask(frames[0], proxy.port)  # fills caches
            costs[where] = [await cost_of(frame, proxy.port) for frame in frames[1:]]
    return costs


async def ranges(port: int) -> dict[int, tuple[int, int]]:
    """The versions of each API that are served, by its key."""
    data = await ask(encode_request(ApiVersionsRequest(), 0, 1, "linear"), port)
    return {
        row.api_key: (row.min_version, row.max_version)
        for row in ApiVersionsResponse.decode(data[4:], 0, unbounded(), 4).api_keys
    }


def is_linear(costs: Sequence[int], noise: int = 0) -> bool:
    """Whether twice as many elements cost about twice as much at most."""
    return all(after < _MOST_GROWTH * before + noise for before, after in pairwise(costs))


@pytest.mark.parametrize("name", TABLES)
async def test_steps_grow_as_the_request_does(name: str) -> None:
    low, high = TABLES[name][1].versions
    for version in range(low, high + 1):
        for where, costs in (await growth(name, version, _FEW, steps_of)).items():
            assert is_linear(costs), f"version {version}, {'.'.join(where)}: {costs}"


@pytest.mark.parametrize("name", TABLES)
async def test_bytes_grow_as_the_request_does(name: str) -> None:
    version = TABLES[name][1].versions[1]
    for where, costs in (await growth(name, version, _MANY, bytes_of)).items():
        assert is_linear(costs, _NOISE_BYTES), f"{'.'.join(where)}: {costs}"


async def test_a_request_whose_cost_grows_faster_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read once for each of its topics."""
    read = MetadataRequest.decode

    def read_often(*arguments: Any, **options: Any) -> MetadataRequest:
        request = read(*arguments, **options)
        for _ in request.topics or ():
            read(*arguments, **options)
        return request

    monkeypatch.setattr(MetadataRequest, "decode", read_often)
    costs = await growth("MetadataRequest", 1, _FEW, steps_of)
    assert not any(is_linear(cost) for cost in costs.values())


async def test_requests_that_kproxy_handles_are_served() -> None:
    """Of others, which the fake broker does not know, only the refusal is measured."""
    async with proxied() as proxy:
        served = await ranges(proxy.port)
    assert len(served) >= _SERVED

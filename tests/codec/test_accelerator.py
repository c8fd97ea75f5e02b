"""The compiled functions of ``accelerator/`` give what the Python functions give, whatever they are handed."""

import random
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kproxy.budget import TooManyElements
from kproxy.codec import accelerator
from kproxy.codec._generated.produce import (
    ProduceResponse,
    ProduceResponsePartitionProduceResponse,
    ProduceResponseTopicProduceResponse,
)
from kproxy.codec.batch import build_batch, stamp
from kproxy.codec.batch_reader import walk_batches
from kproxy.codec.frame import cut_whole
from kproxy.codec.header import encode_response
from kproxy.codec.primitive_writers import (
    write_compact_string,
    write_length,
    write_structs,
    write_tags,
    write_uvarint,
)
from kproxy.codec.produce_layout import (
    FIRST_FLEXIBLE,
    FIRST_TOPIC_ID,
    PartitionData,
    flexible_partitions,
    walk_response,
)
from kproxy.codec.produce_shape import walk_flexible
from kproxy.codec.records import Record
from kproxy.errors import RemoteProtocolError
from kproxy.proxy.produce_batches import new_batches
from tests.codec.produce_samples import response_sample
from tests.codec.test_produce_shape import layout_of, request, topic

SOURCE = Path(__file__).parents[2] / "accelerator" / "kproxy_accelerator.c"
FLEXIBLE = range(FIRST_FLEXIBLE, 14)
#: How often each valid input is damaged.
DAMAGED = 60


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    if accelerator.STATE == "in use":
        pytest.fail("compiled functions would be compared with themselves: set KPROXY_ACCELERATOR=off")
    compiler, headers = shutil.which("cc"), Path(sysconfig.get_paths()["include"])
    if compiler is None or not (headers / "Python.h").exists():
        pytest.fail("no C compiler, or no Python.h: tools/system-packages.sh installs them")
    built = tmp_path_factory.mktemp("accelerator") / "kproxy_accelerator.so"
    warnings = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror")
    subprocess.run([compiler, "-O1", *warnings, "-shared", "-fPIC", f"-I{headers}", SOURCE, "-o", built], check=True)
    spec = spec_from_file_location("kproxy_accelerator", built)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def damaged(whole: bytes | bytearray, seed: int) -> Iterator[bytearray]:
    """The bytes as they are, then with some changed, left out or added."""
    yield bytearray(whole)
    chance = random.Random(seed)
    for _ in range(DAMAGED):
        other = bytearray(whole)
        for _ in range(chance.randint(0, 2)):
            other[chance.randrange(len(other))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        if chance.random() < 0.3:
            del other[chance.randrange(len(other)) :]
        if chance.random() < 0.1:
            other += bytes(chance.randint(1, 40))
        yield other


def uvarint(value: int) -> bytes:
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


def batch(records: int, size: int = 100) -> bytearray:
    return bytearray(build_batch([Record(place, 1, None, bytes(size)) for place in range(records)]))


def produce(version: int) -> bytearray:
    topics = [topic("a", (0, bytes(batch(3))), (1, bytes(batch(1, 20_000)))), topic("bb", (7, bytes(batch(9, 1))))]
    return request(version, topics)


@pytest.mark.parametrize("version", FLEXIBLE)
def test_requests_are_walked_alike(compiled: ModuleType, version: int) -> None:
    whole = produce(version)
    layout = layout_of(whole, version)
    topics = {place.topic: place.topic for place in layout.partitions}
    walk, count = compiled.compiled(walk_flexible), compiled.compiled(new_batches)
    name_bytes = 16 if version >= FIRST_TOPIC_ID else 0
    assert [type(place) for place in walk(whole, layout.acks_at + 6, name_bytes, topics, PartitionData)] == [
        PartitionData
    ] * 3
    for frame in damaged(whole, version):
        args = (frame, layout.acks_at + 6, name_bytes, topics, PartitionData)
        assert outcome(walk, *args) == outcome(walk_flexible, *args)
        assert outcome(count, frame, layout) == outcome(new_batches, frame, layout)


@pytest.mark.parametrize("version", FLEXIBLE)
def test_partitions_of_any_request_are_walked_alike(compiled: ModuleType, version: int) -> None:
    whole = produce(version)
    at = layout_of(whole, version).acks_at + 6
    walk = compiled.compiled(flexible_partitions)
    assert {type(place) for place in walk(whole, at, version, PartitionData)} == {PartitionData}
    for seed in range(4):
        for frame in damaged(whole, 100 * version + seed):
            args = (frame, at, version, PartitionData)
            assert outcome(walk, *args) == outcome(flexible_partitions, *args)


@pytest.mark.parametrize(
    "name", ["", "t", "ä" * 40, "n" * 126, "n" * 127, "n" * 300, "\udcff"], ids=lambda name: f"{len(name)} characters"
)
@pytest.mark.parametrize("version", [FIRST_FLEXIBLE, FIRST_TOPIC_ID])
def test_topics_of_any_name_are_walked_alike(compiled: ModuleType, name: str, version: int) -> None:
    encoded = name.encode("utf-8", "surrogateescape")
    named = bytes(16) if version >= FIRST_TOPIC_ID else uvarint(len(encoded) + 1) + encoded
    topics = b"\2" + named + b"\2" + bytes(4) + b"\2x\0\0\0"
    args = (bytearray(topics), 0, version, PartitionData)
    assert outcome(compiled.compiled(flexible_partitions), *args) == outcome(flexible_partitions, *args)


def test_too_many_partitions_are_refused_alike(compiled: ModuleType) -> None:
    row = bytes(4) + b"\2x\0"
    topics = b"\x7f" + (b"\2t\x7f" + row * 126 + b"\0") * 126 + b"\0"
    args = (bytearray(topics), 0, FIRST_FLEXIBLE, PartitionData)
    assert outcome(flexible_partitions, *args)[0] is TooManyElements
    assert outcome(compiled.compiled(flexible_partitions), *args) == outcome(flexible_partitions, *args)


@pytest.mark.parametrize("longest", [0, 5, 1 << 31])
def test_frames_are_cut_alike(compiled: ModuleType, longest: int) -> None:
    cut = compiled.compiled(cut_whole)
    stream = b"".join(size.to_bytes(4, "big") + bytes(size) for size in (3, 0, 5, 70_000, 1))
    for seed in range(4):
        for data in damaged(stream, seed):
            ours: list[bytearray] = []
            theirs: list[bytearray] = []
            place = memoryview(data)
            assert outcome(cut, place, longest, ours) == outcome(cut_whole, place, longest, theirs)
            assert ours == theirs
            assert all(type(frame) is bytearray for frame in ours)


class Names(str):
    pass


WRITES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    *(
        (write_uvarint, (value,))
        for value in (0, 1, 127, 128, 1 << 14, (1 << 32) - 1, 1 << 32, 1 << 70, -1, True, None)
    ),
    *(
        (write_compact_string, (value,))
        for value in ("", "t", "ä", "x" * 126, "x" * 32_767, "x" * 32_768, "ä" * 20_000)
    ),
    *((write_compact_string, (value,)) for value in (None, b"t", "\udcff", Names("t"))),
    *((write_length, (value, True, False)) for value in ([], [1], [0] * 127, [0] * 20_000, None, (1, 2), 1)),
    *((write_length, ([1], compact, True)) for compact in (False, 1, 0)),
    *((write_length, (None, compact, nullable)) for compact in (True, False) for nullable in (True, False)),
    *((write_tags, (value,)) for value in ({}, {3: b"x", 1: b""}, {1 << 40: b"x"}, {-1: b""}, None, [])),
]


@pytest.mark.parametrize(("function", "args"), WRITES)
def test_values_are_written_alike(compiled: ModuleType, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    for start in (b"", b"before"):
        one, other = bytearray(start), bytearray(start)
        assert outcome(compiled.compiled(function), one, *args) == outcome(function, other, *args)
        assert one == other


@pytest.mark.parametrize(("function", "args"), WRITES)
def test_nothing_is_written_to_what_cannot_grow(
    compiled: ModuleType, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    out = bytearray(b"held")
    with memoryview(out):
        assert outcome(compiled.compiled(function), out, *args) == outcome(function, out, *args)
    for wrong in (b"", None, []):
        assert outcome(compiled.compiled(function), wrong, *args) == outcome(function, wrong, *args)


def test_structs_are_written_in_order_until_one_fails(compiled: ModuleType) -> None:
    def write(out: bytearray, item: int, version: int) -> None:
        out.append(item + version)

    for items in ([], [1, 2, 3], (1, 2), [1, 300, 2], None):
        one, other = bytearray(), bytearray()
        ours = outcome(compiled.compiled(write_structs), one, 4, items, write)
        assert ours == outcome(write_structs, other, 4, items, write)
        assert one == other


@pytest.mark.parametrize("special", [0, 0x20, 0x30, 0x8000, -1, 1 << 70])
@pytest.mark.parametrize("below", [0, 1 << 61, (1 << 63) - 1, 1 << 63, -5, -(1 << 70)])
def test_headers_are_walked_alike(compiled: ModuleType, special: int, below: int) -> None:
    walk = compiled.compiled(walk_batches)
    whole = batch(2, 5)
    stamp(whole, 1 << 61, 3, 4)
    for seed, record_set in enumerate((b"", bytes(batch(1, 3)), bytes(batch(1) + whole + batch(3, 1)), bytes(60))):
        for data in damaged(record_set or b"\0", seed):
            for args in ((memoryview(data), special, below), (bytes(data), special, below)):
                assert outcome(walk, *args) == outcome(walk_batches, *args)
    for nothing in (None, [], "text"):
        assert outcome(walk, nothing, special, below) == outcome(walk_batches, nothing, special, below)


def test_batches_at_odd_places_are_counted_alike(compiled: ModuleType) -> None:
    frame = batch(3)
    layout = layout_of(produce(9), 9)
    count = compiled.compiled(new_batches)
    for start, end in ((0, len(frame)), (0, len(frame) + 9), (1, len(frame)), (0, 61), (-1, -1), (0, 1 << 70)):
        layout.partitions = [PartitionData((b"t", 0), start, end)]
        assert outcome(count, frame, layout) == outcome(new_batches, frame, layout)


@pytest.mark.parametrize(
    "stamped", [(1, 0, 0), ((1 << 62) + 5, 32_767, (1 << 31) - 1), (-1, -1, -1), (1 << 63, 0, 0), (1, 1 << 15, 0)]
)
def test_batches_are_stamped_alike(compiled: ModuleType, stamped: tuple[int, int, int]) -> None:
    for number, size in enumerate((0, 1, 61, 4095, 16_383, 16_384, 70_000)):
        for before in damaged(batch(2, size), number):
            one, other = before[:], before[:]
            assert outcome(compiled.compiled(stamp), memoryview(one), *stamped) == outcome(stamp, other, *stamped)
            assert one == other


def test_a_batch_that_cannot_be_written_is_left_to_the_python_function(compiled: ModuleType) -> None:
    with pytest.raises(TypeError):
        compiled.compiled(stamp)(bytes(batch(1)), 1, 0, 0)
    with pytest.raises(RemoteProtocolError):
        compiled.compiled(stamp)(bytearray(60), 1, 0, 0)


@pytest.mark.parametrize("version", range(14))
def test_responses_are_walked_alike(compiled: ModuleType, version: int) -> None:
    walk = compiled.compiled(walk_response)
    for seed in range(6):
        for frame in damaged(encode_response(response_sample(version, seed), version, 1), seed):
            assert outcome(walk, frame, version) == outcome(walk_response, frame, version)


def test_an_accelerator_of_another_interface_is_left_alone(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerator, "import_module", lambda name: compiled)
    assert accelerator._installed({}) == (compiled, "in use")
    monkeypatch.setattr(accelerator, "_INTERFACE", compiled.INTERFACE + 1)
    assert accelerator._installed({}) == (None, "of another version")


def test_the_accelerator_can_be_switched_off(compiled: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "import_module", lambda name: compiled)
    assert accelerator._installed({"KPROXY_ACCELERATOR": "off"}) == (None, "switched off")
    assert accelerator._installed({"KPROXY_ACCELERATOR": "on"}) == (compiled, "in use")


def test_kproxy_works_without_the_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(accelerator, "import_module", missing)
    assert accelerator._installed({}) == (None, "not installed")


def handing_on(name: str) -> Callable[..., Any]:
    def function(*_: Any) -> None:
        raise AssertionError(f"{name} did not take a usual case")

    function.__name__ = name
    return function


@pytest.mark.parametrize("version", FLEXIBLE)
def test_the_usual_case_is_not_handed_on(compiled: ModuleType, version: int) -> None:
    frame = produce(version)
    layout = layout_of(frame, version)
    topics = {place.topic: place.topic for place in layout.partitions}
    walk = compiled.compiled(handing_on("walk_flexible"))
    name_bytes = 16 if version >= FIRST_TOPIC_ID else 0
    assert walk(frame, layout.acks_at + 6, name_bytes, topics, PartitionData) == layout.partitions
    walk_any = compiled.compiled(handing_on("flexible_partitions"))
    assert walk_any(frame, layout.acks_at + 6, version, PartitionData) == layout.partitions
    assert compiled.compiled(handing_on("new_batches"))(frame, layout) == [3, 1, 9]
    compiled.compiled(handing_on("stamp"))(batch(3), 1, 0, 0)


@pytest.mark.parametrize("version", range(2, 14))
def test_the_usual_response_is_not_handed_on(compiled: ModuleType, version: int) -> None:
    rows = [ProduceResponsePartitionProduceResponse(index=4, base_offset=1 << 40, error_code=-1)]
    topic_rows = ProduceResponseTopicProduceResponse(name="t", topic_id=b"i" * 16, partition_responses=rows)
    answer = encode_response(ProduceResponse(responses=[topic_rows]), version, 1)
    name = b"i" * 16 if version >= FIRST_TOPIC_ID else b"t"
    assert compiled.compiled(handing_on("walk_response"))(answer, version) == {(name, 4): (-1, 1 << 40, -1)}


def test_usual_frames_and_values_are_not_handed_on(compiled: ModuleType) -> None:
    one = batch(2)
    walk = compiled.compiled(handing_on("walk_batches"))
    assert walk(one + one[:-1], 0x20, 1 << 63) == (0, len(one), 2 * len(one))
    assert walk(one, 0x20, 0) == (-1, 0, len(one))
    frames: list[bytearray] = []
    assert compiled.compiled(handing_on("cut_whole"))(memoryview(b"\0\0\0\1a\0\0\0\1b\0\0"), 1 << 31, frames) == 10
    assert frames == [b"\0\0\0\1a", b"\0\0\0\1b"]
    out = bytearray()
    compiled.compiled(handing_on("write_uvarint"))(out, 300)
    compiled.compiled(handing_on("write_compact_string"))(out, "ab")
    assert compiled.compiled(handing_on("write_length"))(out, [1, 2], True, False) == [1, 2]
    compiled.compiled(handing_on("write_tags"))(out, {})
    compiled.compiled(handing_on("write_structs"))(out, 1, [7], lambda out, item, version: out.append(item))
    assert out == b"\xac\2\3ab\3\0\7"


def test_only_known_functions_have_a_compiled_form(compiled: ModuleType) -> None:
    with pytest.raises(LookupError):
        compiled.compiled(outcome)

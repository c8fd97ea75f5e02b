"""The generated messages: they agree with their tables, with Kafka's own classes, and with nothing that is damaged."""

import contextlib
import json
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.budget import unbounded
from kproxy.errors import RemoteProtocolError
from tests.support.java import JavaLines
from tests.support.message_oracle import message_oracle
from tests.support.samples import TABLES, Sampler, all_versions, message_class, versions
from tools import generate_codec

GENERATED = ("3.9.1", "4.4.0")
BEFORE_GENERATED = ("0.8.2.2", "0.10.2.2")
# What 0.8.2.2 carries for these was never served by a broker; 0.9 gave the same keys and versions other fields.
NEVER_SERVED = {("0.8.2.2", 11), ("0.8.2.2", 12)}
# 3.9.1 lacks these, or has early versions of them that were marked unstable and later changed without a new number.
_SHARE = tuple(f"{verb}Share" for verb in ("", "Read", "Write", "Initialize", "Delete", "Describe", "Alter"))
NOT_FROM_3_9 = (*_SHARE, "Streams", "ListConfigResources", "UnregisterController")
# Fields that have another name in a release.
RENAMED = {("3.9.1", "TxnOffsetCommitRequest"): ("generationIdOrMemberEpoch", "generationId")}
HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x7f\xff", b"\xff\xff\x7f")


@pytest.fixture(scope="module")
def oracle() -> Iterator[JavaLines]:
    with message_oracle(*BEFORE_GENERATED, *GENERATED) as running:
        yield running


def served(oracle: JavaLines, release: str, name: str) -> range:
    """The versions of a message that a release knows and that mean the same as ours."""
    if release == "3.9.1" and name.startswith(NOT_FROM_3_9):
        return range(0)
    low, high = map(int, oracle.ask(f"range {release} {name}").split())
    return range(low, high + 1)


def test_the_generated_code_agrees_with_the_tables() -> None:
    assert generate_codec.main(["--check"]) == 0


def test_the_check_names_a_file_that_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate_codec, "TARGET", tmp_path)
    assert generate_codec.main([]) == 0
    assert generate_codec.main(["--check"]) == 0
    (tmp_path / "fetch.py").write_text("")
    (tmp_path / "left_over.py").write_text("")
    assert generate_codec.main(["--check"]) == 1
    told = capsys.readouterr().err
    assert "fetch.py" in told
    assert "left_over.py" in told
    assert "metadata.py" not in told
    assert generate_codec.main([]) == 0
    assert not (tmp_path / "left_over.py").exists()


@pytest.mark.java
@pytest.mark.parametrize("release", GENERATED)
@pytest.mark.parametrize("name", TABLES)
def test_kafkas_generated_classes_read_and_write_the_same_bytes(oracle: JavaLines, release: str, name: str) -> None:
    for version in served(oracle, release, name):
        for seed in range(2):
            message, values = Sampler(name, version, seed).message()
            ours = message.encode(version)
            told = json.dumps(values).replace(*RENAMED.get((release, name), ("", "")))
            written = oracle.ask(f"write {release} {name} {version} {told}")
            assert ours.hex() == written, f"version {version}, seed {seed}"
            assert message_class(name).decode(bytes.fromhex(written), version, unbounded()) == message

            message, _ = Sampler(name, version, seed, tags=True).message()
            ours = message.encode(version)
            assert oracle.ask(f"read {release} {name} {version} {ours.hex()}") == ours.hex(), f"{version}, {seed}"


@pytest.mark.java
def test_every_version_of_the_tables_is_known_to_one_of_the_releases(oracle: JavaLines) -> None:
    for name in TABLES:
        known = {v for release in GENERATED for v in served(oracle, release, name)}
        assert known == set(versions(name)), name


@pytest.mark.java
@pytest.mark.parametrize("release", BEFORE_GENERATED)
def test_old_schema_tables_read_and_write_the_same_bytes(oracle: JavaLines, release: str) -> None:
    checked = 0
    for name, (_, table) in TABLES.items():
        kind = "REQUESTS" if name.endswith("Request") else "RESPONSES"
        if table.api_key < 0 or (release, table.api_key) in NEVER_SERVED:
            continue
        for version in range(int(oracle.ask(f"known {release} {kind} {table.api_key}"))):
            checked += 1
            for seed in range(3):
                ours = Sampler(name, version, seed, nulls=False).message()[0].encode(version).hex()
                theirs = oracle.ask(f"schema {release} {kind} {table.api_key} {version} {ours}")
                assert theirs == ours, f"{name} version {version}, seed {seed}"
    assert checked == {"0.8.2.2": 18, "0.10.2.2": 62}[release]


@pytest.mark.parametrize(("name", "version"), list(all_versions()))
def test_a_message_is_read_whole_and_in_no_other_way(name: str, version: int) -> None:
    cls = message_class(name)
    message, _ = Sampler(name, version, 0, tags=True).message()
    data = message.encode(version)
    assert cls.decode(data, version, unbounded()) == message
    assert cls.decode(memoryview(b"head" + data), version, unbounded(), 4) == message
    assert cls.decode(bytearray(data), version, unbounded()).encode(version) == data
    for cut in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            cls.decode(data[:cut], version, unbounded())
    for extra in (b"\0", b"\0\0\0\0", b"\xff" * 9):
        with pytest.raises(RemoteProtocolError):
            cls.decode(data + extra, version, unbounded())


@pytest.mark.parametrize("name", TABLES)
def test_damaged_bytes_give_a_message_or_the_protocol_error(name: str) -> None:
    rng = random.Random(name)
    cls = message_class(name)
    for version in versions(name):
        for seed in range(8):
            data = bytearray(Sampler(name, version, seed, tags=True).message()[0].encode(version)[:2000])
            for _ in range(rng.randint(1, 4)):
                damage(rng, data)
            try:
                message = cls.decode(data, version, unbounded())
            except RemoteProtocolError:
                continue
            message.encode(version)  # what was read can be said again


def damage(rng: random.Random, data: bytearray) -> None:
    at = rng.randint(0, len(data))
    kind = rng.randrange(4)
    if kind == 0 and at < len(data):
        data[at] = rng.randrange(256)
    elif kind == 1:
        data[at:at] = rng.randbytes(rng.randint(1, 4))
    elif kind == 2:
        del data[at : at + rng.randint(1, 8)]
    else:
        data[at : at + 4] = rng.choice(
            [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\x0f"]
        )


def test_frames_that_claim_gigabytes_cost_no_memory() -> None:
    tracemalloc.start()
    try:
        for name, version in all_versions():
            cls = message_class(name)
            claims = [(claim * 10)[:20] for claim in HUGE]
            sample = Sampler(name, version, 1, nulls=False).message()[0].encode(version)[:60]
            claims += [sample[:at] + claim + bytes(8) for at in range(0, len(sample), 3) for claim in HUGE[:2]]
            for claim in claims:
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                with contextlib.suppress(RemoteProtocolError):
                    cls.decode(claim, version, unbounded())
                assert tracemalloc.get_traced_memory()[1] - before < 1_000_000, f"{name} {version} {claim.hex()}"
    finally:
        tracemalloc.stop()

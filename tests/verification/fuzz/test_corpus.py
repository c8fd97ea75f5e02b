"""Inputs that fuzzing has found, among them each that was a finding: they stay within what is promised."""

import re
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from kproxy.codec import downconvert, proxy_header, zstd_frame
from kproxy.proxy.handlers import control_batches
from kproxy.txn import visibility
from verification.fuzz.corpus import KEPT, Corpus, kept, name_of, read, spread, write
from verification.fuzz.measure import bounded, cost
from verification.fuzz.target import LONGEST, Finding
from verification.fuzz.targets import TARGETS

MOST_BYTES = 300_000


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_and_valid_ones_are_no_findings(name: str) -> None:
    target, corpus = TARGETS[name], kept(name)
    assert corpus.inputs
    for data in (*corpus.inputs, *corpus.found):
        bounded(target, data)
    for data in target.seeds():
        assert len(data) <= LONGEST
        target.check(data)


def test_inputs_are_kept_of_every_target_and_take_little_room() -> None:
    assert {path.stem for path in KEPT.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in KEPT.iterdir()) <= MOST_BYTES


_Converter = downconvert._Converter
#: By target, kproxy without a rule that fuzzing has brought, and what is raised then.
MENDED: list[tuple[str, Callable[[], AbstractContextManager[object]], type[Exception]]] = [
    ("old-sets", partial(mock.patch.object, _Converter, "convert", _Converter._convert), struct.error),
    ("balanced", partial(mock.patch.multiple, proxy_header, _PORT=re.compile("[0-9]+"), _MOST_PORT=1 << 40), Finding),
    ("fetch", partial(mock.patch.object, visibility, "_MOST_OFFSET", 1 << 70), struct.error),
    ("fetch", partial(mock.patch.object, control_batches, "_MOST_DIGITS", 1 << 70), ValueError),
]


@pytest.mark.parametrize(("name", "without", "error"), MENDED)
def test_what_was_found_is_found_again_without_its_remedy(
    name: str, without: Callable[[], AbstractContextManager[object]], error: type[Exception]
) -> None:
    target, raised = TARGETS[name], list[type[Exception]]()
    with without():
        for data in kept(name).found:
            try:
                bounded(target, data)
            except Exception as one:
                raised.append(type(one))
    assert error in raised


def test_what_is_no_zstd_takes_no_memory() -> None:
    """Content that is compressed may take far more, so the bound of the target says nothing of it."""
    target, [data] = TARGETS["digests"], kept("digests").found
    assert cost(target, data).memory < 20_000
    with mock.patch.object(zstd_frame, "content_bound", lambda data: 1 << 62):
        assert cost(target, data).memory > 1_000_000


def test_an_archive_is_the_same_for_the_same_inputs(tmp_path: Path) -> None:
    inputs, found = [b"", b"one", b"two" * 100], [b"found"]
    write(tmp_path / "deeper" / "one.zip", Corpus(inputs, found))
    write(tmp_path / "two.zip", Corpus([*reversed(inputs), b"one"], found))
    assert (tmp_path / "deeper" / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert read(tmp_path / "two.zip") == (inputs, found)
    assert read(tmp_path / "none.zip") == ([], [])


def test_inputs_are_spread_over_files(tmp_path: Path) -> None:
    spread(tmp_path / "inputs", [b"", b"one", b"one"])
    files = {path.name: path.read_bytes() for path in (tmp_path / "inputs").iterdir()}
    assert files == {name_of(b""): b"", name_of(b"one"): b"one"}

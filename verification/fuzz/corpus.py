"""The inputs that are kept: one archive for each target, which tests replay."""

import hashlib
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from verification.fuzz.choices import Choices, piece

#: Where they are.
KEPT: Final = Path(__file__).resolve().parents[2] / "tests" / "verification" / "fuzz" / "corpus"
#: The same archive for the same inputs: no time of day in it.
_TIME: Final = (1980, 1, 1, 0, 0, 0)


class Corpus(NamedTuple):
    """Inputs of one target, each once, the shortest first."""

    #: Those that reach most.
    inputs: list[bytes]
    #: Those that were findings.
    found: list[bytes]


def name_of(data: bytes) -> str:
    """The name of an input's file, which its bytes decide."""
    return hashlib.sha256(data).hexdigest()[:16]


def read(path: Path) -> Corpus:
    """What an archive holds; nothing if there is none."""
    if not path.exists():
        return Corpus([], [])
    with zipfile.ZipFile(path) as archive:
        return Corpus(*(list(_pieces(archive.read(name))) for name in Corpus._fields))


def write(path: Path, corpus: Corpus) -> None:
    """Replaces an archive. Each part is one file in it: with a file for each input most of it would be names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, inputs in corpus._asdict().items():
            whole = b"".join(map(piece, sorted(set(inputs), key=lambda data: (len(data), data))))
            archive.writestr(zipfile.ZipInfo(name, _TIME), whole, zipfile.ZIP_DEFLATED, compresslevel=9)


def _pieces(data: bytes) -> Iterable[bytes]:
    said = Choices(data)
    while said.more:
        yield said.piece()


def kept(target: str) -> Corpus:
    """What is kept for a target."""
    return read(KEPT / f"{target}.zip")


def spread(folder: Path, inputs: Iterable[bytes]) -> None:
    """Puts inputs into a folder, a file for each."""
    folder.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (folder / name_of(data)).write_bytes(data)

"""Where the last run ended: ``state.json`` in the directory of the audits, replaced as a whole or not at all."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kproxy.spark.audit.request import wrong

STATE: Final = "state.json"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """Progress in one partition: judged up to ``offset``; from ``reread`` on is the window of repetitions."""

    topic: str
    partition: int
    offset: int
    reread: int


@dataclass(frozen=True, slots=True)
class State:
    """What a run leaves to the next one; ``run`` names the directory with what it carries over."""

    run: str
    places: tuple[PartitionProgress, ...]


def load_state(directory: Path) -> State | None:
    """What the last run left; None if there was none. StartupError if it can't be read."""
    path = directory / STATE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return _state(data)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise wrong(f"{path} can't be read ({error}); --fresh starts again") from None


def _state(data: Any) -> State:
    if data["version"] != _VERSION:
        raise ValueError(f"version {data['version']}, not {_VERSION}")
    return State(str(data["run"]), tuple(PartitionProgress(**row) for row in data["places"]))


def save_state(directory: Path, state: State) -> None:
    """Replaces the file atomically, on disk when this returns. OSError if that fails."""
    text = json.dumps({"version": _VERSION, "run": state.run, "places": [asdict(place) for place in state.places]})
    write_whole(directory / STATE, text.encode())


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file that is seen whole or not at all, also after a crash. OSError if that fails."""
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

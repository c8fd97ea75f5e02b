"""Whether files have changed since they were last checked: replaced, rewritten, or at another link's target."""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

#: Modification time, size and inode of each file that is there.
Stamps: TypeAlias = tuple[tuple[int, int, int], ...]


def file_stamps(paths: Iterable[Path]) -> Stamps:
    """What changes with the files' contents; nothing for one that is not there just now."""
    seen = []
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            continue
        seen.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(seen)

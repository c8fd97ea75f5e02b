"""A cache of slow downloads, shared by processes: ``$KPROXY_CACHE`` or ``~/.cache/kproxy``.

A lock file makes them wait for one download instead of racing it. A file gets its final name when it is complete.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path


def cache_directory() -> Path:
    """Return the directory of the cache; it may not exist yet."""
    configured = os.environ.get("KPROXY_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "kproxy"


def filled_once(target: Path, fill: Callable[[Path], None]) -> Path:
    """Return ``target``, filling it first if it is not there: ``fill`` gets an empty directory that becomes it."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            work = Path(tempfile.mkdtemp(dir=target.parent, prefix="download-"))
            try:
                fill(work)
                work.rename(target)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return target


def installed(kind: str, inputs: Sequence[str], install: Callable[[Path], None]) -> Path:
    """Return the directory that ``install`` filled for just these inputs, filling it first when it is not there."""
    digest = hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:16]
    return filled_once(cache_directory() / "clients" / f"{kind}-{digest}", install)

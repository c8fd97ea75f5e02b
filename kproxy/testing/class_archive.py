"""Classes that Java has read once, kept so that the next start only maps them: class data sharing (JEP 350).

A broker or a Spark is up in half the time and with half the work. A run that starts many makes the archives first, by
``python -m kproxy.testing.archive_kafka`` and ``archive_spark``; where there is none, or one that does not fit, Java
reads the jars as ever.
"""

import hashlib
from pathlib import Path

from kproxy.testing.cache import cache_directory


def archive_of(name: str, java: str, directory: Path | None = None) -> Path:
    """Where the archive of some jars lies, for just this Java, in the cache or a directory; the file may not exist."""
    return (directory or cache_directory()) / f"{name}-classes-{_build_of(java)}" / "classes.jsa"


def archive_in(directory: Path, java: str) -> Path:
    """Where the archive lies of what starts with the jars in a directory; the file may not exist."""
    return directory / f"classes-{_build_of(java)}.jsa"


def sharing(archive: Path) -> list[str]:
    """Java's options that use an archive; none if it is not there."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"] if archive.exists() else []


def writing(archive: Path) -> list[str]:
    """Java's options that write an archive when the process ends in order."""
    return [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def _build_of(java: str) -> str:
    """A digest of what Java says of itself: another build can't read the archive."""
    home = Path(java).resolve().parent.parent
    release = home / "release"
    told = release.read_bytes() if release.exists() else str(home).encode()
    return hashlib.sha256(told).hexdigest()[:16]

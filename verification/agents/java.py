"""What agents written in Java have in common: jars from Maven, and how their programs start."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from kproxy.testing.cache import installed
from kproxy.testing.maven import MINIMUM_JAVA, QUICK_JVM, copy_jars, dependencies, find_java, java_version
from kproxy.testing.tools import Unavailable
from verification.agents.agent import Agent
from verification.agents.packages import Unpacked

__all__ = ["SIMPLE_LOG", "JavaAgent", "find_newer_java"]

#: Where these programs log to: their standard error.
SIMPLE_LOG: Final = "org.slf4j:slf4j-simple:1.7.36"
_JVM: Final = ("-Xmx256m", *QUICK_JVM)
#: Where Debian puts each Java.
_INSTALLED: Final = Path("/usr/lib/jvm")


class JavaAgent(Agent):
    """A program whose jars are Maven's."""

    release: str
    #: What Maven resolves, as ``group:artefact:version``.
    artefacts: Sequence[str]
    #: The oldest Java that runs it.
    java_release = MINIMUM_JAVA

    @classmethod
    def unpacked(cls) -> Unpacked:
        fill = partial(copy_jars, cls.name, dependencies(*cls.artefacts))
        return Unpacked(installed("agent-java", cls.artefacts, fill), cls.release)

    def java(self, unpacked: Unpacked, *arguments: str) -> Sequence[str]:
        """The command that runs Java with its jars."""
        return [find_newer_java(self.java_release), *_JVM, "-cp", self.class_path(unpacked), *arguments]

    def class_path(self, unpacked: Unpacked) -> str:
        """Where its classes are."""
        return f"{unpacked.root}/*"

    def settings(self, name: str, text: str) -> Path:
        """Writes a file of its configuration."""
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


def find_newer_java(minimum: int, installed_in: Path = _INSTALLED) -> str:
    """The usual Java, or if that is too old another that is installed beside it. Unavailable: none is new enough."""
    try:
        return find_java(minimum)
    except Unavailable:
        for java in sorted(installed_in.glob("*/bin/java")):
            if java_version(str(java)) >= minimum:
                return str(java)
        raise

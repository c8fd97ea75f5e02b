"""What agents written in Java have in common: jars from Maven, and how their programs start."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from kproxy.testing.cache import installed
from kproxy.testing.maven import QUICK_JVM, copy_jars, dependencies, find_java
from verification.agents.agent import Agent
from verification.agents.packages import Unpacked

__all__ = ["SIMPLE_LOG", "JavaAgent"]

#: Where these programs log to: their standard error.
SIMPLE_LOG: Final = "org.slf4j:slf4j-simple:1.7.36"
_JVM: Final = ("-Xmx256m", *QUICK_JVM)


class JavaAgent(Agent):
    """A program whose jars are Maven's."""

    release: str
    #: What Maven resolves, as ``group:artefact:version``.
    artefacts: Sequence[str]

    @classmethod
    def unpacked(cls) -> Unpacked:
        fill = partial(copy_jars, cls.name, dependencies(*cls.artefacts))
        return Unpacked(installed("agent-java", cls.artefacts, fill), cls.release)

    def java(self, unpacked: Unpacked, *arguments: str) -> Sequence[str]:
        """The command that runs Java with its jars."""
        return [find_java(), *_JVM, "-cp", f"{unpacked.root}/*", *arguments]

    def settings(self, name: str, text: str) -> Path:
        """Writes a file of its configuration."""
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        return path

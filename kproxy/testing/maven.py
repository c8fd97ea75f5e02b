"""Kafka's own jars from Maven, fetched once into the cache: one directory for each Kafka version."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from kproxy.testing.cache import cache_directory, filled_once
from kproxy.testing.tools import Unavailable, find_tool, run_tool

MINIMUM_JAVA: Final = 17
QUICK_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For programs that end soon: Maven and javac take half of the processor's time with the quick compiler alone."""
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kproxy</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    {}
  </dependencies>
  <repositories>{}</repositories>
</project>
"""
# Kafka logs through SLF4J 1.7 and brings no back end along; the simple one needs no configuration file.
_KAFKA: Final = ("org.apache.kafka:kafka_2.13:{0}", "org.apache.kafka:kafka-tools:{0}", "org.slf4j:slf4j-simple:1.7.36")
_DEPENDENCY: Final = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>\n    "
)


def find_java(minimum: int = MINIMUM_JAVA) -> str:
    """Return the path of a Java of at least this version (``$JAVA_HOME`` first, then ``PATH``).

    :raises Unavailable: none found, or too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise Unavailable(
            f"no java found: install Java {minimum} or later (Debian: apt-get install openjdk-{minimum}-jre-headless)"
        )
    found = java_version(java)
    if found < minimum:
        raise Unavailable(f"{java} has version {found or 'unknown'}: this needs Java {minimum} or later")
    return java


def java_version(java: str) -> int:
    """Return the version of a Java, like 17; 0 if it does not print one."""
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    match = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else 0


def maven_environment() -> dict[str, str]:
    """Return the environment of a process that runs Maven; the user's own options count more than ours."""
    return {**os.environ, "MAVEN_OPTS": " ".join([*QUICK_JVM, os.environ.get("MAVEN_OPTS", "")])}


def kafka_jars(version: str) -> Path:
    """Return a directory with all jars of a Kafka broker and its tools, resolving them by Maven when first needed.

    Safe to call from several processes at once.

    :param version: a release of Apache Kafka, like ``4.4.0``.
    :raises Unavailable: Maven or Java is missing, or the artefacts do not resolve.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise Unavailable(f"not a Kafka release: {version!r}")
    artefacts = dependencies(*(artefact.format(version) for artefact in _KAFKA))
    return maven_jars(f"kafka-{version}", f"Kafka {version}", artefacts)


def dependencies(*coordinates: str) -> str:
    """Return the elements ``dependency`` of a POM for each ``group:artefact:version``."""
    return "".join(_DEPENDENCY.format(*coordinate.split(":")) for coordinate in coordinates)


def maven_jars(name: str, what: str, artefacts: str, repositories: str = "") -> Path:
    """Return a directory with the jars of some artefacts and all that they need, resolved when first asked for.

    :param name: of the directory in the cache; another for other artefacts.
    :param what, artefacts, repositories: as of ``copy_jars``.
    :raises Unavailable: as of ``kafka_jars``.
    """
    return filled_once(cache_directory() / name, lambda jars: copy_jars(what, artefacts, jars, repositories))


def copy_jars(what: str, artefacts: str, jars: Path, repositories: str = "") -> None:
    """Copy the jars of some artefacts and of all that they need at run time into a directory.

    :param what: the artefacts in words, for errors.
    :param artefacts: elements ``dependency`` of a POM; ``repositories``: elements ``repository``.
    :raises Unavailable: as of ``kafka_jars``.
    """
    find_java()
    maven = find_tool("mvn", "Maven 3.6 or later (Debian: apt-get install maven)")
    with tempfile.TemporaryDirectory(prefix="kproxy-pom-") as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(_POM.format(artefacts, repositories), encoding="utf-8")
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command.append(f"-DoutputDirectory={jars}")
        try:
            run_tool(command, Path(work), maven_environment())
        except Unavailable as error:
            raise Unavailable(f"Maven cannot resolve {what}: {error}") from error

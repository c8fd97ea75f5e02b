"""Writes the field tables under ``schema/`` from the message definitions inside two kafka-clients jars.

3.9.1 is the last release that knows the oldest versions (KIP-896 dropped them in 4.0), 4.4.0 knows the newest. Where
both know a version, 4.4.0 wins. Only facts are taken: names, types, versions, nullability, tags and defaults.

    python -m tools.import_schema                     # after NEW was raised
    python -m tools.import_schema --check RELEASE     # what the newest release has that the tables lack; or a version

CONTRIBUTING.md has the recipe for a new release of Kafka.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.codec_tables import NEVER, Range, parse_range, snake

if TYPE_CHECKING:
    from collections.abc import Sequence

OLD, NEW = "3.9.1", "4.4.0"
ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "schema"
EXTRA = ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment")

EMPTY: Range = parse_range("none", NEVER)

ERRORS_SOURCE = """
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.errors.RetriableException;
public class Dump {
    public static void main(String[] args) {
        for (Errors e : Errors.values()) {
            String retriable = e.exception() instanceof RetriableException ? " retriable" : "";
            System.out.println(e.code() + " " + e.name() + retriable);
        }
    }
}
"""

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>kproxy</groupId><artifactId>schema</artifactId><version>1</version><dependencies><dependency>
<groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>{version}</version>
</dependency></dependencies></project>"""


def fetch_jars(version: str, directory: Path) -> Path:
    """Copies kafka-clients and what it needs into a directory below ``directory`` by Maven and returns that."""
    target = directory / version
    target.mkdir()
    (target / "pom.xml").write_text(POM.format(version=version))
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    subprocess.run(["mvn", "-q", "-B", goal, f"-DoutputDirectory={target / 'libs'}"], cwd=target, check=True)
    return target / "libs"


def read_definitions(jar: Path) -> dict[str, dict[str, Any]]:
    """All message definitions in a kafka-clients jar, by message name."""
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+\.json", name):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                found[Path(name).stem] = json.loads(text)
    return found


def union(first: Range, second: Range) -> Range:
    """The union of two ranges that touch or overlap, or of which one is empty."""
    if first[1] < first[0]:
        return second
    if second[1] < second[0]:
        return first
    if first[1] + 1 < second[0] or second[1] + 1 < first[0]:
        raise ValueError(f"versions are not contiguous: {first} and {second}")
    return min(first[0], second[0]), max(first[1], second[1])


class Merge:
    """Merges the definitions of one message from the old and the new release."""

    def __init__(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        base = new or old
        if base is None:
            raise ValueError("neither release has this message")
        self.old, self.new = old or {}, new or {}
        self.new_valid = parse_range(self.new.get("validVersions", "none"), NEVER)
        self.old_valid = parse_range(self.old.get("validVersions", "none"), NEVER)
        if new is not None:
            # An unstable version of the old release (early share groups) is not what the new release serves.
            below = EMPTY if self.new_only(old) else (self.old_valid[0], self.new_valid[0] - 1)
            self.old_valid = below
        self.valid = union(self.old_valid, self.new_valid)
        self.flexible = parse_range(base["flexibleVersions"], NEVER)

    @staticmethod
    def new_only(old: dict[str, Any] | None) -> bool:
        """Whether nothing is taken from the old release."""
        return old is None or bool(old.get("unstable"))

    def versions(self, old: dict[str, Any], new: dict[str, Any], key: str) -> Range:
        """The versions under ``key`` of a field, each release's clipped to the versions taken from it."""
        a, b = (parse_range(side.get(key, "none"), NEVER) for side in (old, new))
        clipped = union(
            (max(a[0], self.old_valid[0]), min(a[1], self.old_valid[1])),
            (max(b[0], self.new_valid[0]), min(b[1], self.new_valid[1])),
        )
        return clipped if clipped[0] <= clipped[1] else EMPTY

    def text(self, versions: Range) -> str:
        """A range as it is written in the table: open-ended if it reaches the newest version."""
        if versions[1] >= self.valid[1]:
            return f"{versions[0]}+"
        return str(versions[0]) if versions[0] == versions[1] else f"{versions[0]}-{versions[1]}"

    def lines(self, old: list[dict[str, Any]], new: list[dict[str, Any]], depth: int) -> list[str]:
        """The table lines of a list of fields."""
        olds, news = {f["name"]: f for f in old}, {f["name"]: f for f in new}
        order = list(news)
        names = list(olds)
        for i, name in enumerate(names):
            if name not in news:
                order.insert(order.index(names[i - 1]) + 1 if i else 0, name)
        out: list[str] = []
        for name in order:
            out += self.field(olds.get(name, {}), news.get(name, {}), depth)
        return out

    def field(self, old: dict[str, Any], new: dict[str, Any], depth: int) -> list[str]:
        """The table lines of one field and of the struct inside it; none if no version has it."""
        versions = self.versions(old, new, "versions")
        if versions == EMPTY:
            return []
        base = {**old, **new}
        words = [base["name"], base["type"], self.text(versions)]
        for key, word in (("nullableVersions", "nullable"), ("taggedVersions", "tagged")):
            if (inner := self.versions(old, new, key)) != EMPTY:
                words.append(f"{word}={self.text(inner)}")
        if "tag" in base:
            words.append(f"tag={base['tag']}")
        default = str(base.get("default", "")).replace("0x7fffffff", "2147483647")
        if default:
            words.append(f"default={default.lower()}")
        if str(base.get("ignorable", False)).lower() == "true":
            words.append("ignorable")
        if base.get("flexibleVersions") == "none":
            words.append("inflexible")
        inner_lines = self.lines(old.get("fields", []), new.get("fields", []), depth + 1)
        return ["  " * depth + " ".join(words), *inner_lines]

    def table(self, title: str) -> list[str]:
        """The section of this message: a head line, its fields, and the structs that several fields share."""
        flexible = "none" if self.flexible == EMPTY else f"{self.flexible[0]}+"
        low, high = self.valid
        out = [f"{title} {low}-{high} flexible={flexible}"]
        out += self.lines(self.old.get("fields", []), self.new.get("fields", []), 1)
        olds = {s["name"]: s for s in self.old.get("commonStructs", [])}
        news = {s["name"]: s for s in self.new.get("commonStructs", [])}
        for name in {**news, **olds}:
            out.append(f"  struct {name}")
            out += self.lines(olds.get(name, {}).get("fields", []), news.get(name, {}).get("fields", []), 2)
        return out


def client_requests(*releases: dict[str, dict[str, Any]]) -> dict[int, str]:
    """API key to name (without ``Request``) of all that a broker's client listener serves; the last release wins."""
    keys = {}
    for release in releases:
        for name, definition in release.items():
            if definition["type"] == "request" and "broker" in definition.get("listeners", []):
                keys[definition["apiKey"]] = name.removesuffix("Request")
    return keys


def message_tables(old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By file name one table for each API key and one for each embedded message of ``EXTRA``."""
    tables = {}
    for key, name in sorted(client_requests(old, new).items()):
        unstable = old.get(f"{name}Request", {}).get("latestVersionUnstable", False)
        lines = [f"api {key} {name}"]
        for kind in ("Request", "Response"):
            was, now = old.get(name + kind), new.get(name + kind)
            if was is not None:
                was["unstable"] = unstable
            lines += Merge(was, now).table(kind.lower())
        tables[f"{snake(name)}.txt"] = "\n".join(lines) + "\n"
    for name in EXTRA:
        lines = [f"data {name}", *Merge(old[name], new[name]).table("data")]
        tables[f"{snake(name)}.txt"] = "\n".join(lines) + "\n"
    return tables


def error_table(libs: Path, directory: Path) -> str:
    """The table of error codes as the new release's own enum has them."""
    source = directory / "Dump.java"
    source.write_text(ERRORS_SOURCE)
    command = ["java", "-cp", f"{libs}/*", str(source)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def released_tables(newest: str) -> dict[str, str]:
    """By file name all tables, as the message definitions of ``OLD`` and of another release of kafka-clients have them.

    ``newest``: a version, or Maven's word RELEASE for the newest that there is.
    """
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        libs = {version: fetch_jars(version, directory) for version in (OLD, newest)}
        old, new = (read_definitions(next(libs[v].glob("kafka-clients-*.jar"))) for v in (OLD, newest))
        return {**message_tables(old, new), "errors.txt": error_table(libs[newest], directory)}


def differences(released: dict[str, str], schema: dict[str, str]) -> list[str]:
    """One line for each version, field or error code that a release has and the tables lack, or the other way round."""
    found = []
    for name in sorted({*released, *schema}):
        theirs, ours = (tables.get(name, "").splitlines() for tables in (released, schema))
        lines = [line for line in difflib.ndiff(ours, theirs) if line[:1] in "+-"]
        words = {"+": "lacks", "-": "has, but the release does not,"}
        found += [f"schema/{name} {words[line[:1]]} `{line[2:].strip()}`" for line in lines]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetches both releases and writes all tables, or says in what they differ (status 1)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="VERSION", help="compare with this release, or with RELEASE, the newest")
    chosen = parser.parse_args(arguments).check
    released = released_tables(chosen or NEW)
    if chosen is None:
        for name, text in released.items():
            (SCHEMA / name).write_text(text)
        return 0
    found = differences(released, {path.name: path.read_text() for path in SCHEMA.glob("*.txt")})
    print("\n".join(found) or f"schema/ has all versions and fields of kafka-clients {chosen}.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

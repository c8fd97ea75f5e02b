"""docs/clients.md has every client and its version; the first example of docs/transactions.md works."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from kproxy.codec.batch import iter_records
from kproxy.testing.cluster_client import ClusterClient
from kproxy.testing.kafka import RealKafka
from tests.docs.test_doc_blocks import ROOT, blocks, fenced
from tests.interop.catalog import CLIENTS, Client
from tests.interop.proxy import KproxyProcess
from tests.interop.transactional import TRANSACTIONAL, Transactional
from tests.support.clients import DRIVERS, Command, python_driver
from tests.support.patience import PATIENCE_S

_ROWS = [
    line
    for line in Path(__file__).parents[2].joinpath("docs", "clients.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ")
]


def _release(client: Client | Transactional) -> tuple[str, str]:
    match = re.match(r"(\D+)-(\d[\d.]*\d)", client.name)
    assert match is not None
    return match[1], match[2]


@pytest.mark.parametrize("client", (*CLIENTS, *TRANSACTIONAL), ids=lambda client: client.name)
def test_the_table_has_the_client(client: Client | Transactional) -> None:
    family, release = _release(client)
    rows = [re.sub(r"[|,;]", " ", row).lower().split() for row in _ROWS]
    assert any(row[0] == family and release in row for row in rows)


def test_names_tell_the_installed_versions() -> None:
    pinned = json.loads((DRIVERS / "node" / "package.json").read_text(encoding="utf-8"))["dependencies"]
    modules = (DRIVERS / "go" / "go.mod").read_text(encoding="utf-8")
    pinned |= {path.rsplit("/", 1)[1]: version for path, version in re.findall(r"^\t(\S+) v(\S+)$", modules, re.M)}
    for family, release in map(_release, CLIENTS):
        if family in pinned and (family, release) != ("sarama", "1.19.0"):
            assert pinned[family] == release


class Example:
    """The first section of docs/transactions.md, with a broker, topics and a socket of this test's own."""

    _PAGE = ROOT / "docs" / "transactions.md"
    _TOPICS = ("orders", "payments")

    def __init__(self, kafka: RealKafka, directory: Path, old: Command) -> None:
        texts = [block.text for block in [*blocks(self._PAGE), *fenced("python")] if block.page == self._PAGE]
        [run] = [text.splitlines()[-1] for text in texts if "kproxy run" in text]
        [self.program] = [text for text in texts if "KafkaProducer" in text]
        [shell] = [text for text in texts if "txn begin --socket" in text]
        self._begin, _, self._commit = shell.splitlines()
        self._old = old
        command, brokers, *options = run.split(" --")
        assert [command, brokers] == ["kproxy run", "bootstrap-servers broker1:9092"]
        self._places = {"/tmp/kproxy.sock": str(directory / "kproxy.sock")}
        self.kproxy = KproxyProcess(kafka.bootstrap, directory / "log", *self._words("--" + " --".join(options)))
        self._places["127.0.0.1:19092"] = self.kproxy.bootstrap
        name = uuid4().hex[:8]
        self._places |= {f'"{topic}"': f'"{topic}-{name}"' for topic in self._TOPICS}
        with ClusterClient(kafka.bootstrap) as client:
            for topic in self._TOPICS:
                client.create_topic(f"{topic}-{name}", 1)

    def _here(self, text: str) -> str:
        for place, mine in self._places.items():
            text = text.replace(place, mine)
        return text

    def _words(self, text: str) -> list[str]:
        return shlex.split(self._here(text), comments=True)

    def python(self, program: str) -> subprocess.CompletedProcess[str]:
        """Run it with the old producer's library."""
        text = f"from installed_six import use; use()\n{self._here(program)}"
        environment = {**self._old.whole_environment}
        environment["PYTHONPATH"] += f":{DRIVERS / 'python'}:{ROOT}"
        return _run([sys.executable, "-c", text], environment)

    def begin(self) -> str:
        """Begin a transaction on the command line; its owner."""
        done = self._kproxy(self._words(self._begin))
        return re.findall(r"^owner +(\d+:\d+)", done, re.M)[0]

    def commit(self, owner: str) -> None:
        assert "4000:7" in self._commit
        assert "CompleteCommit" in self._kproxy(self._words(self._commit.replace("4000:7", owner)))

    def _kproxy(self, words: Sequence[str]) -> str:
        assert words[0] == "kproxy"
        done = _run([sys.executable, "-m", *words])
        assert done.returncode == 0, done.stderr
        return done.stdout

    def read(self, isolation_level: int = 1) -> list[list[str]]:
        """What a consumer sees through kproxy in each topic; 1: only what is committed."""
        found = []
        with ClusterClient(self.kproxy.bootstrap) as client:
            for topic in self._TOPICS:
                data = client.read_all(self._places[f'"{topic}"'].strip('"'), 0, isolation_level=isolation_level)
                rows = iter_records(data, max_decompressed_bytes=1 << 20)
                found.append([(row.value or b"").decode()[:20] for row in rows])
        return found


def _run(words: Sequence[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.kafka
@pytest.mark.java
@pytest.mark.parametrize("release", ["1.4.7", "3.0.12"])
def test_the_first_example_of_transactions_is_whole_or_nothing(kafka: RealKafka, tmp_path: Path, release: str) -> None:
    old = python_driver("kafka_python.py", f"kafka-python=={release}", "six==1.17.0")
    example = Example(kafka, tmp_path, old)
    with example.kproxy:
        first, second = ["order 1"], ["payment 1"]
        done = example.python(example.program)
        assert done.returncode == 0, done.stderr
        assert example.read() == [first, second]
        assert 'kproxy_legacy_requests_total{api_key="Produce",api_version="1",' in example.kproxy.metrics()

        larger = example.program.replace('b"payment 1"', "bytes(2_000_000)")
        done = example.python(larger.replace('acks="all"', 'acks="all", max_request_size=4_000_000'))
        # a busy client sends both in one request: the other one fails then, too, by an error that it has no name for
        assert "MessageSizeTooLarge" in done.stderr or "UnknownError" in done.stderr, done.stderr
        assert example.read() == [first, second]

        plain = re.sub(r"^with control.transaction.*:$", "if True:", example.program, flags=re.M)
        assert plain != example.program
        assert example.python(plain).returncode == 1
        assert example.read() == [first, second]

        owner = example.begin()
        done = example.python(plain)
        assert done.returncode == 0, done.stderr
        assert example.read() == [first, second]
        example.commit(owner)
        assert example.read() == [first * 2, second * 2]
        assert example.read(isolation_level=0)[0] == first * 3  # an aborted record is hidden, not deleted
        example.kproxy.check()

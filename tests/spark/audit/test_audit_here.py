"""The command without Spark, on a fake cluster; also what its second run takes from the first."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from kproxy.cli import main
from kproxy.codec.batch import Record, build_batch
from kproxy.config import ExitCode
from kproxy.spark.audit.audit_job import WORST
from kproxy.spark.audit.catalogue import FINDINGS
from tests.spark.fake_cluster import Fake, fake_cluster


def write(fake: Fake, sequence: int, contents: list[str]) -> None:
    records = [Record(at, 1_000 * at, content.encode(), b"v") for at, content in enumerate(contents)]
    with fake.client() as client:
        batch = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)
        assert client.produce("orders", 0, batch).error_code == 0


def arguments(fake: Fake, out: Path, *more: str) -> list[str]:
    needed = ["audit", "--bootstrap-servers", fake.bootstrap, "--topics", "orders", "--out", str(out)]
    return [*needed, "--key", "string(key)", "--json", *more]


def audit(fake: Fake, out: Path, *more: str) -> tuple[int, dict[str, Any]]:
    code = main(arguments(fake, out, *more))
    newest = max(out.glob("run=*"))
    return code, json.loads((newest / "summary.json").read_text())


def counts(summary: dict[str, Any]) -> dict[str, int]:
    return {outcome["name"]: outcome["count"] for outcome in summary["outcomes"] if outcome["count"]}


def test_an_audit_in_this_process(tmp_path: Path) -> None:
    out = tmp_path / "audits"
    with fake_cluster() as fake, fake.client() as client:
        client.create_topic("orders", 2)
        write(fake, 0, ["a", "b"])
        code, first = audit(fake, out)
        assert (code, counts(first), first["totals"]["records"]) == (ExitCode.OK, {}, 2)
        write(fake, 2, ["c", "c"])
        code, second = audit(fake, out)
        assert (code, counts(second)) == (ExitCode.PROMISE_BROKEN, {"duplicate_keys": 1})
        assert (second["former_run"], second["totals"]["records"]) == (first["run"], 2)
        assert sum(bucket["repeated"] for bucket in second["repeated_over_time"]) == 1
    run = out / f"run={second['run']}"
    tables = {finding.name for finding in FINDINGS} | {"visibility", "protection", "stable_offsets", "carried"}
    assert {path.parent.name for path in run.glob("*/*.parquet")} == tables | {"transaction_log"}
    assert {path.name for path in out.iterdir()} == {f"run={first['run']}", run.name, "state.json"}


def test_the_worst_are_in_the_order_of_their_count_and_then_of_their_key(tmp_path: Path) -> None:
    keys = [f"key-{number:02}" for number in range(60)]
    with fake_cluster() as fake, fake.client() as client:
        client.create_topic("orders", 1)
        write(fake, 0, [*reversed(keys), *keys, "key-42"])
        _, summary = audit(fake, tmp_path)
    (found,) = [outcome for outcome in summary["outcomes"] if outcome["name"] == "duplicate_keys"]
    assert found["count"] == 60
    rest = [key for key in keys if key != "key-42"]
    assert [row["duplicate_key"] for row in found["worst"]] == ["key-42", *rest[: WORST - 1]]


def test_it_needs_no_spark(tmp_path: Path) -> None:
    with fake_cluster() as fake, fake.client() as client:
        client.create_topic("orders", 1)
        program = (
            f"import sys; sys.modules['pyspark'] = None; from kproxy.cli import main;"
            f"sys.exit(main({arguments(fake, tmp_path)!r}))"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")
    assert json.loads(done.stdout)["sentence"] == "All promises held."

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from kproxy.spark.pipeline import submit_line
from tests.spark.pipeline.files import WHOLE, loaded


def words(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    return shlex.split(submit_line(loaded(folder, text), environ or {}))


def test_on_this_machine(tmp_path: Path) -> None:
    found = words(tmp_path, WHOLE)
    assert Path(found[0]).is_file()
    assert words(tmp_path, WHOLE, {"SPARK_HOME": "/opt/spark"})[0] == "/opt/spark/bin/spark-submit"
    assert found[1:5] == ["--master", "local[*]", "--deploy-mode", "client"]
    assert f"spark.pyspark.python={sys.executable}" in found
    assert "spark.sql.shuffle.partitions=4" in found
    program, file = found[-2:]
    assert Path(program).is_file()
    assert file == str(tmp_path / "p.yaml")


def test_with_the_driver_on_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "my lib").mkdir()
    (tmp_path / "my lib" / "cleaning.py").write_text("def clean(lines): ...\n")
    (tmp_path / "my lib" / "unused.py").write_text("")
    text = WHOLE.replace("sql: SELECT * FROM lines JOIN shops USING (shop)", "python: cleaning:clean\n    path: my lib")
    text = text.replace("spark: {", "spark: {spark.master: yarn, spark.submit.deployMode: cluster, ")
    found = words(tmp_path, text)
    assert found[1:5] == ["--master", "yarn", "--deploy-mode", "cluster"]
    assert found[found.index("--py-files") + 1] == str(tmp_path / "my lib" / "cleaning.py")
    assert found[found.index("--files") + 1] == str(tmp_path / "p.yaml")
    assert found[-1] == "p.yaml"
    assert not any(word.startswith("spark.pyspark.python") for word in found)

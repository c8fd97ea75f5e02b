"""Pipeline files for tests."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

from kproxy.spark.pipeline import Pipeline, load

WHOLE = """\
name: orders
kafka:
  bootstrap.servers: 127.0.0.1:19092
  control: http://127.0.0.1:19645
  token.file: /etc/kproxy/token
  producer: {compression.type: zstd}
sources:
  lines: {topics: [orders-raw, orders-old], max.offsets.per.trigger: 1000}
  late: {pattern: "late-.*", watermark: {column: timestamp, delay: 1 minute}}
  shops: {parquet: /data/shops, static: true}
steps:
  - name: orders
    sql: SELECT * FROM lines JOIN shops USING (shop)
  - name: totals
    sql: SELECT shop, count(*) AS value FROM orders GROUP BY shop
sinks:
  - {topic: orders-clean, from: orders, key: id, value: to_json(struct(*))}
  - {topic: order-totals, from: totals}
  - {parquet: /data/orders, from: orders, partition.by: [day]}
checkpoint: /var/lib/orders
trigger: {continuous: 5 seconds}
spark: {spark.sql.shuffle.partitions: 4}
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "p.yaml"
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    return file


def loaded(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> Pipeline:
    return load(write(folder, text), environ or {})

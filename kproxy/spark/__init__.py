"""Spark reads and writes Kafka through kproxy exactly once: data source ``kproxy``, pipelines, audit."""

"""The proof of the Spark sink: numbers in, each once in each of three topics, while everything is killed.

A stream on a Spark cluster of processes (``local-cluster``) copies numbered records from one topic into three, by one
query, through kproxy to a real Kafka. Driver, executors, Python workers, kproxy and brokers are killed (``kill -9``)
at seeded moments; attempts are repeated and speculative. A reader beside it looks all the time whether the three
topics agree. The same job with Spark's own Kafka sink shows what that does without kproxy.
"""

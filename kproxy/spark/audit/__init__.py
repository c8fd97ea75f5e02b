"""The audit: a Spark job that reads topics and the transaction log, and reports whether kproxy's guarantees hold.

Findings are functions from DataFrames to a DataFrame with one row for each fault; ``catalogue`` lists them.
``job.audit`` reads, judges, and writes tables, report and the place where the next run begins.
"""

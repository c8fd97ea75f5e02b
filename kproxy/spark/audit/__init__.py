"""The audit: reads topics and the transaction log, and reports whether kproxy's guarantees hold.

Rules are SQL with one row for each fault; ``catalogue`` lists them, ``engine`` says what runs them: DuckDB in this
process, or Spark. ``audit_job.audit`` reads, judges, and writes tables, report and the place where the next run begins.
"""

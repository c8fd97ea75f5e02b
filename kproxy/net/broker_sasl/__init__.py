"""kproxy logs in at brokers: with which credentials, on each new connection, and again before a login ends."""

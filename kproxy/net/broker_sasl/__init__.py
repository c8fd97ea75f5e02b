"""kproxy's logins at brokers: credentials and tokens, on each new connection, and renewed before a login expires."""

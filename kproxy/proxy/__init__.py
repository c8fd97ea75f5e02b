"""One client connection without sockets: requests and responses, Produce, rights, quotas, routing, counters."""

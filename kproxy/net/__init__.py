"""The trio shell: listeners, connections of clients and to brokers, resending, kproxy's own topics, draining."""

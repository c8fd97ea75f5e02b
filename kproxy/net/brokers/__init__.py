"""kproxy's own requests to brokers: connections, leaders, coordinators, versions and retries."""

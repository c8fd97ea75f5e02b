"""kproxy's own login at a broker, without its socket: mechanisms, the exchange, and its responses between others."""

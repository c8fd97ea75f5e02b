"""The proxy without its sockets: sessions, answer order, routing, and the bridge between protocol versions."""

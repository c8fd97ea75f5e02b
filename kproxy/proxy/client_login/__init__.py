"""Clients that log in at kproxy itself, without sockets: mechanisms, stored credentials, the order of requests."""

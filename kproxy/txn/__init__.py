"""Transactions (KIP-98): reserved for kproxy's own coordinator, its log and the read_committed view."""

"""Transactions that the broker's coordinator decides and kproxy asks for: implicit ones, KIP-98's, and members'."""

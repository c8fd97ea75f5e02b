"""Procedures of transactions: coroutines that decide each step, and wait for nothing but ``outside``."""

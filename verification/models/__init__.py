"""Explicit-state models: each explores every interleaving of a small scenario, also with one rule replaced."""

"""Transactions on kproxy's own log (KIP-98) without I/O: its records, the view of each id, and what readers may see."""

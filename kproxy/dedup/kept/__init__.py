"""Producers that number their batches themselves, and whose numbers kproxy keeps valid (KIP-98, KIP-360)."""

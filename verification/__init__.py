"""Proof of what kproxy promises: simulations, chaos on real brokers, models, attacks. Not in the wheel."""

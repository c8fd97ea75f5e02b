"""The simulation with transactions: producers of KIP-98, readers of committed data, kproxies that decide."""

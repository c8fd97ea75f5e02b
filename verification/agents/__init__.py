"""Log shippers and other agents that people run, unmodified but for the address: directly, and through kproxy."""

"""Many kproxies in one process, on a virtual clock, at one fake cluster: what a fleet asks of its brokers."""

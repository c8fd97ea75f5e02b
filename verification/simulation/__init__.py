"""Deterministic simulation: kproxy, a fake cluster, old clients and faults in one process, on a virtual clock."""

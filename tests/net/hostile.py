"""kproxy and a fake broker as processes, as ``make hostile`` starts them."""

from verification.hostile.target import PATIENCE, Besieged, besieged, wait_for

__all__ = ["PATIENCE", "Besieged", "besieged", "wait_for"]

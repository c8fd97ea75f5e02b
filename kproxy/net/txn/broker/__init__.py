"""Transactions at home in the broker, for clients that know nothing of them."""

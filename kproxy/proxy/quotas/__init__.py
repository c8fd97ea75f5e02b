"""Quotas: limits by principal and client.id, and how long a client that exceeds one is throttled."""

"""``make hostile``: a live kproxy under attack by clients that need no login, and what that cost it."""

"""How much each client may do: limits by principal and client.id, and how long whoever exceeds them has to wait."""

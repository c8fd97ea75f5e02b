"""Programs that use released clients, one process each."""

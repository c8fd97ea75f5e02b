"""The trio shell: listeners, client and upstream connections, and the one loop that moves bytes between them."""

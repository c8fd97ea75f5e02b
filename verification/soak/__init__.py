"""Clients that come, do their part and leave, for as long as asked; and whether kproxy then holds what it held."""

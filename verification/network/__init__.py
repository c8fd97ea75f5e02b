"""Released clients on a real network that misbehaves: ``python -m verification.network``.

The kernel's own TCP carries everything. Clients run in a network namespace, kproxy and brokers in another one; between
the two a program forwards IP packets, so it can delay or drop any of them, acknowledgements too, and nothing but the
two kernels acknowledges bytes.
"""

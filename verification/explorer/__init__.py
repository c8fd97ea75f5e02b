"""Drives the procedures of transactions (``kproxy.txn.procedures``) through every order of what may happen.

Nothing of the protocol is stated here: the code that serves clients is what runs. Only the outside is made up, as
``procedures.outside`` names it: a log, partitions, a group, clients, and what goes wrong.
"""

"""Explores every interleaving of the transaction log's protocol, with the reader's rule that kproxy itself has.

``python -m verification.models.transaction_log``; docs/transactions-model.md says what is modelled, and what was found.
"""

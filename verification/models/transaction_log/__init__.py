"""Explores every interleaving of the transaction log's protocol, with the reader's rule that kproxy itself has.

``python -m verification.models.transaction_log``; docs/transactions-model.md says what is modelled, and what was found.

The model stays beside ``verification.explorer``, which has no world yet with a snapshot, a deletion of records, a
rejected producer id, or two transactional ids whose producers share a group. A member joins there only for a driver
(``explorer.drivers``), without a fault in between.
"""

"""Explicit-state model of identities: which producer id and epoch EndTxn and InitProducerId may answer."""

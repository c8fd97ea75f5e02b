"""Kafka's own system test of transactions, through kproxy: numbers are written, copied in transactions, and counted.

``VerifiableProducer`` and ``TransactionalMessageCopier`` come from Kafka's tools; kproxies, brokers and copiers are
killed meanwhile.
"""

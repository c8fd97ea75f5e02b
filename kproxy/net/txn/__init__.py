"""The trio shell of transactions: kproxy's coordinator and its log in Kafka, and clients' requests to it."""

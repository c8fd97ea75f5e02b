"""The trio shell of kproxy's own transactions: their log in Kafka, and what is built on it."""

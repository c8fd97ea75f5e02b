"""Released idempotent producers while responses are lost, brokers are killed and epochs are raised by others."""

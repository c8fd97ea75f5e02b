"""What can go wrong in a data source, as one line that a user understands."""


class OptionError(ValueError):
    """An option is unknown, out of range or contradicts another; the message names it and what would be valid."""


class KafkaError(RuntimeError):
    """A broker or kproxy can't be reached, or refuses; the message says which, and for what."""


class DataLost(KafkaError):
    """Records that were to be read are deleted; the message names them, and says how to continue without them."""


class LoginFailed(KafkaError):
    """TLS or SASL fails in a way that the next attempt would not change; the message says what to do."""

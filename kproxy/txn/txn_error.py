"""The errors that stop a transaction, with Kafka's error codes."""

from kproxy.codec.messages import ErrorCode
from kproxy.errors import KproxyError


class TxnError(KproxyError):
    """A request about a transaction fails; ``error_code`` is the one that the client receives."""

    def __init__(self, error_code: ErrorCode, message: str = "") -> None:
        """``message`` says what is wrong and what would be right, for people."""
        super().__init__(f"{error_code.name}: {message}" if message else error_code.name)
        self.error_code = error_code
        self.message = message

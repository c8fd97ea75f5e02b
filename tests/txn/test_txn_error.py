"""The error code that a client receives, and the text for people."""

from kproxy.codec.messages import ErrorCode
from kproxy.errors import KproxyError
from kproxy.txn.txn_error import TxnError


def test_an_error_has_kafkas_code_and_a_text() -> None:
    error = TxnError(ErrorCode.PRODUCER_FENCED, "a newer producer has the id")
    assert isinstance(error, KproxyError)
    assert error.error_code == 90
    assert error.message == "a newer producer has the id"
    assert str(error) == "PRODUCER_FENCED: a newer producer has the id"
    assert str(TxnError(ErrorCode.CONCURRENT_TRANSACTIONS)) == "CONCURRENT_TRANSACTIONS"

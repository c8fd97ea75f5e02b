import pytest

from kproxy.errors import KproxyError, LocalProtocolError, RemoteProtocolError


@pytest.mark.parametrize("kind", [RemoteProtocolError, LocalProtocolError])
def test_one_base_for_all_that_is_raised_on_purpose(kind: type[KproxyError]) -> None:
    with pytest.raises(KproxyError, match="what went wrong"):
        raise kind("what went wrong")


def test_who_erred_is_never_confused() -> None:
    assert not issubclass(RemoteProtocolError, LocalProtocolError)
    assert not issubclass(LocalProtocolError, RemoteProtocolError)


def test_a_bug_is_none_of_them() -> None:
    assert KproxyError.__bases__ == (Exception,)

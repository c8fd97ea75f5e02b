"""Which brokers answer, by address."""

from kproxy.net.brokers.contacts import Contacts, Silence
from kproxy.proxy.routing import Address

ONE, OTHER = Address("one", 9092), Address("other", 9092)


def test_a_broker_is_silent_from_its_first_failure_to_its_next_answer() -> None:
    now, fell_silent = [100.0], []
    contacts = Contacts(lambda: now[0], lambda: fell_silent.append(now[0]))
    assert contacts.silence(ONE) is None
    contacts.failed(ONE, OSError("refused"))
    now[0] = 130.0
    contacts.failed(ONE, OSError("no answer"))
    assert contacts.silence(ONE) == Silence(100.0, "no answer", 130.0)
    contacts.answered(ONE)
    assert contacts.silence(ONE) is None
    now[0] = 140.0
    contacts.failed(ONE, OSError("refused"))
    assert fell_silent == [100.0, 140.0]


def test_others_are_not_silent_with_it() -> None:
    contacts = Contacts(lambda: 1.0, lambda: None)
    contacts.failed(ONE, OSError("refused"))
    assert contacts.silence(OTHER) is None
    assert contacts.silent([OTHER, ONE]) == [Silence(1.0, "refused", 1.0)]
    contacts.forget(ONE)
    assert contacts.silent([OTHER, ONE]) == []

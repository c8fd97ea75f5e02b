from kproxy.demo.failure import DemoFailed


def test_the_message_is_what_the_user_reads() -> None:
    assert str(DemoFailed("the producer makes no progress")) == "the producer makes no progress"
    assert issubclass(DemoFailed, RuntimeError)

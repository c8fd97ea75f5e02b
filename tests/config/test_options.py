import dataclasses

from kproxy.config import Config, options
from kproxy.config.options import OptionGroup, describe, gather, option
from kproxy.config.values import BOOLEAN, whole_number

MS = whole_number(1, 100, "ms")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    linger_time: int = dataclasses.field(metadata=describe(MS, "How long to wait.", group="Times"))
    retry_time: int = option(5, MS, "How long until the next attempt.", default_text="a little")
    enable: bool = option(True, BOOLEAN, "Whether at all.", group="Switches")


TABLE = options(Model)


def test_the_table_has_dotted_names_in_the_order_of_the_fields() -> None:
    assert list(TABLE) == ["linger.time", "retry.time", "enable"]
    assert [entry.name for entry in TABLE.values()] == list(TABLE)
    assert [entry.attribute for entry in TABLE.values()] == ["linger_time", "retry_time", "enable"]


def test_a_group_holds_until_the_next_one() -> None:
    assert [entry.group for entry in TABLE.values()] == ["Times", "Times", "Switches"]


def test_only_a_field_without_a_default_is_required() -> None:
    assert [entry.required for entry in TABLE.values()] == [True, False, False]


def test_a_default_is_shown_or_described() -> None:
    assert [entry.default_text for entry in TABLE.values()] == ["", "a little", "true"]
    assert [entry.default_is_text for entry in TABLE.values()] == [False, True, False]


def test_kind_and_reason_are_those_of_the_field() -> None:
    assert TABLE["linger.time"].kind is MS
    assert TABLE["enable"].reason == "Whether at all."


def test_the_model_is_a_plain_dataclass_with_the_defaults() -> None:
    assert Model(linger_time=1) == Model(linger_time=1, retry_time=5, enable=True)


def test_spellings() -> None:
    entry = options(Config)["bootstrap.servers"]
    assert (entry.flag, entry.variable) == ("--bootstrap-servers", "KPROXY_BOOTSTRAP_SERVERS")
    assert entry.required


class First(OptionGroup):
    one: bool = option(True, BOOLEAN, "One.", group="First")


class Second(First):
    two: bool = option(False, BOOLEAN, "Two.")


def test_options_of_several_groups_are_gathered_once_from_the_last_base() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    @gather
    class Whole(Second, First):
        """All."""

    assert [(entry.name, entry.group) for entry in options(Whole).values()] == [("one", "First"), ("two", "First")]
    assert Whole(two=True) == Whole(one=True, two=True) != Whole()

import pytest

from kproxy.codec._generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic


def test_each_has_lists_of_its_own() -> None:
    one, other = MetadataRequest(), MetadataRequest()
    assert one.topics == []
    assert one.topics is not other.topics
    assert one.unknown_tags is not other.unknown_tags


def test_equal_fields_make_equal_structs_of_one_class() -> None:
    assert MetadataRequestTopic(name="a") == MetadataRequestTopic(name="a")
    assert MetadataRequestTopic(name="a") != MetadataRequestTopic(name="b")
    assert MetadataRequestTopic(name="a") != MetadataResponseTopic(name="a")


def test_no_struct_is_a_key() -> None:
    with pytest.raises(TypeError):
        hash(MetadataRequestTopic())


def test_a_copy_has_other_values_in_some_fields() -> None:
    topics = [MetadataRequestTopic(name="a")]
    first = MetadataRequest(topics)
    second = first.replaced(allow_auto_topic_creation=False)
    assert (second.topics, second.allow_auto_topic_creation) == (topics, False)
    assert first.allow_auto_topic_creation
    with pytest.raises(TypeError, match="MetadataRequest has no field 'topic'"):
        first.replaced(topic=[])


def test_it_shows_all_fields() -> None:
    assert repr(MetadataRequestTopic(b"1", "a")) == "MetadataRequestTopic(topic_id=b'1', name='a', unknown_tags={})"


def test_a_field_that_no_struct_has_is_refused() -> None:
    with pytest.raises(TypeError):
        MetadataRequestTopic(partition=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        MetadataRequestTopic().partition = 1  # type: ignore[attr-defined]

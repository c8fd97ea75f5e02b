import pytest

from kproxy.codec.batch import Record, build_batch
from kproxy.errors import LocalProtocolError
from tests.codec.record_lists import NOW, plain, records_in


class TestBuild:
    def test_relative_to_the_first_offset(self) -> None:
        records = [record._replace(offset=record.offset + 1000) for record in plain()]
        assert records_in(build_batch(records, base_offset=5)) == [
            record._replace(offset=record.offset - 995) for record in records
        ]

    @pytest.mark.parametrize("offsets", [[], [0, 0], [1, 0]])
    def test_what_no_batch_can_say(self, offsets: list[int]) -> None:
        with pytest.raises(LocalProtocolError):
            build_batch([Record(offset, NOW, None, None) for offset in offsets])

    def test_unknown_codec(self) -> None:
        with pytest.raises(LocalProtocolError):
            build_batch(plain(), codec=5)

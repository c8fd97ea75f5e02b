import resource

import pytest

from kproxy.config.os_limits import clients_for_files, http_connections, kept_files, may_open, open_files_for


def test_each_client_has_a_broker_and_something_is_left() -> None:
    assert open_files_for(10_000) == 21_000


@pytest.mark.parametrize(
    ("files", "kept", "clients", "http"),
    [(256, 64, 96, 16), (1024, 256, 384, 64), (21_000, 1_000, 10_000, 250), (4, 1, 1, 4)],
)
def test_clients_leave_a_part_of_the_files(
    files: int, kept: int, clients: int, http: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (files, files))
    assert (may_open(), kept_files(), clients_for_files(), http_connections()) == (files, kept, clients, http)


def test_a_system_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    assert kept_files() == 1_000
    assert clients_for_files() > 1_000_000

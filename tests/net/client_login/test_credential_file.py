from pathlib import Path
from stat import S_IMODE

import pytest

from kproxy.net.client_login.credential_file import (
    CredentialError,
    CredentialFile,
    read_credentials,
    write_credentials,
)
from kproxy.proxy.client_login.stored_credentials import Credentials
from tests.proxy.client_login.users import USERS, VERIFIERS

NOBODY = Credentials(b"d" * 32, {})


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "users"
    write_credentials(path, USERS)
    assert S_IMODE(path.stat().st_mode) == 0o600
    assert read_credentials(path).verifiers == VERIFIERS
    path.chmod(0o640)
    write_credentials(path, NOBODY)
    assert S_IMODE(path.stat().st_mode) == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["users"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    path, link = tmp_path / "users", tmp_path / "link"
    link.symlink_to(path)
    write_credentials(link, USERS)
    assert link.is_symlink()
    assert read_credentials(path).verifiers == VERIFIERS


def test_what_cannot_be_written_or_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CredentialError, match="No such file"):
        write_credentials(tmp_path / "none" / "users", USERS)
    with pytest.raises(CredentialError, match="No such file"):
        read_credentials(tmp_path / "users")
    (tmp_path / "users").write_bytes(b"\xff")
    with pytest.raises(CredentialError, match="no UTF-8 text"):
        read_credentials(tmp_path / "users")
    (tmp_path / "users").write_text("alice:secret\n")
    with pytest.raises(CredentialError, match="users: line 1 must be"):
        read_credentials(tmp_path / "users")


def test_a_new_file_counts_within_a_second_and_a_broken_one_never(tmp_path: Path) -> None:
    path, now = tmp_path / "users", [0.0]
    write_credentials(path, NOBODY)
    file = CredentialFile(path, lambda: now[0])
    write_credentials(path, USERS)
    now[0] = 0.9
    assert not file.current().verifiers
    now[0] = 1.0
    assert file.current().verifiers == VERIFIERS
    path.write_text("broken\n")
    now[0] = 2.0
    assert file.current().verifiers == VERIFIERS
    path.unlink()
    now[0] = 3.0
    assert file.current().verifiers == VERIFIERS

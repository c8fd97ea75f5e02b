"""The configurations that are attacked, and by what."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import trustme

from kproxy.net.client_login.credential_file import write_credentials
from kproxy.proxy.client_login.stored_credentials import Credentials, make_verifier
from verification.hostile import attacks
from verification.hostile.target import Besieged

Attack: TypeAlias = Callable[[Besieged], str]

_RULES: Final = """
rules:
  - name: all clients use one topic
    permission: allow
    principals: ["*"]
    operations: [All]
    topics: [t]
    groups: [group]
    transactional.ids: [tx]
    cluster: true
"""
_QUOTAS: Final = """
quotas:
  - principal: "*"
    producer_byte_rate: 100000000
    consumer_byte_rate: 100000000
    request_rate: 100000
"""


@dataclass(frozen=True, slots=True)
class Setup:
    """One configuration."""

    name: str
    #: Its options; they may write files into the directory.
    options: Callable[[Path], Sequence[str]]
    attacks: Sequence[Attack]
    #: Whether mutated frames are sent to it.
    floods: bool = True
    #: Whether clients need neither TLS nor a login.
    opens: bool = True
    #: Whether an honest client can ask beside the attacks.
    pings: bool = True


def _plain(directory: Path) -> Sequence[str]:
    return ()


def _transactions(directory: Path) -> Sequence[str]:
    return ("--transactions-home=kproxy",)


def _rules(directory: Path) -> Sequence[str]:
    (directory / "acl.yaml").write_text(_RULES)
    return (f"--acl-file={directory / 'acl.yaml'}", "--transactions-home=kproxy")


def _quotas(directory: Path) -> Sequence[str]:
    (directory / "quotas.yaml").write_text(_QUOTAS)
    return (f"--quotas-file={directory / 'quotas.yaml'}",)


def _logins(directory: Path) -> Sequence[str]:
    path = directory / "credentials"
    verifiers = {
        ("alice", mechanism): make_verifier(mechanism, "secret", b"0123456789abcdef", 16_384)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    }
    write_credentials(path, Credentials(b"d" * 32, verifiers))
    return ("--sasl-enabled-mechanisms=PLAIN", f"--sasl-credentials-location={path}")


def _tls(directory: Path) -> Sequence[str]:
    certificate = trustme.CA().issue_cert("localhost")
    path = directory / "tls.pem"
    certificate.private_key_and_cert_chain_pem.write_to_path(str(path))
    return (f"--ssl-certificate-location={path}", "--ssl-handshake-timeout-ms=2000")


SETUPS: Final = (
    Setup(
        "plain",
        _plain,
        (
            attacks.half_frames,
            attacks.empty_names,
            attacks.records_bomb,
            attacks.client_ids,
            attacks.held_frames,
            attacks.old_fetches,
            attacks.wide_metadata,
            attacks.compared_headers,
            attacks.compared_records,
            attacks.headers_read_back,
            attacks.pipelines,
        ),
    ),
    Setup("transactions", _transactions, (attacks.groups,)),
    Setup("rules", _rules, (attacks.refused_names, attacks.long_names)),
    Setup("quotas", _quotas, ()),
    Setup("logins", _logins, (attacks.guesses,), floods=False, opens=False),
    Setup("TLS", _tls, (attacks.handshakes,), floods=False, opens=False, pings=False),
)

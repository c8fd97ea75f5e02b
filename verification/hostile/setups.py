"""The configurations that are attacked, and by what."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import trustme

from kproxy.dedup.doubt_memory import MAX_PEER_BYTES
from kproxy.net.client_login.credential_file import write_credentials
from kproxy.proxy.client_login.stored_credentials import Credentials, make_verifier
from verification.hostile import attacks, broker_attacks, http_attacks, producer_attacks
from verification.hostile.target import Target, besieged, besieged_webhook

#: An honest client is served before it would give up, also where other programs keep the machine busy.
_SHORT_WAIT: Final = 5.0
#: What the chart's limit of memory leaves to the webhook.
_WEBHOOK_RISE: Final = 120 << 20

#: With 4 KB for each of 6,000 producers: those of the attacks that come before the measured ones count, too.
_PRODUCERS_RISE: Final = 24 << 20
#: What compared batches may take, beside those of one peer that stay unconfirmed.
_COMPARED_RISE: Final = (32 << 20) + MAX_PEER_BYTES
#: What is known of a producer on 10,000 partitions, each time that the attack is run, and the frames for all of them.
_GAPS_RISE: Final = 64 << 20
#: buffer.memory of a setup, in bytes.
_LITTLE_MEMORY: Final = 32 << 20

#: Takes the target of its setup.
Attack: TypeAlias = Callable[[Any], str]

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
    #: How many files kproxy may have open; None: as many as the system allows.
    files: int | None = None
    #: As ``Limits``.
    most_rise: int | None = None
    most_wait: float | None = None
    #: Whether its broker may be made to answer wrong.
    wrong: bool = False

    def besiege(self, directory: Path) -> AbstractContextManager[Target]:
        """Starts it."""
        return besieged(directory, *self.options(directory), opens=self.opens, files=self.files, wrong=self.wrong)


class WebhookSetup(Setup):
    """The admission webhook."""

    def besiege(self, directory: Path) -> AbstractContextManager[Target]:
        return besieged_webhook(directory)


def _plain(directory: Path) -> Sequence[str]:
    return ()


def _little_memory(directory: Path) -> Sequence[str]:
    return (f"--buffer-memory={_LITTLE_MEMORY}", f"--max-frame-bytes={_LITTLE_MEMORY // 2}")


def _transactions(directory: Path) -> Sequence[str]:
    return ("--transactions-home=kproxy",)


def _long_window(directory: Path) -> Sequence[str]:
    return ("--retry-window-ms=600000",)


def _fenced(directory: Path) -> Sequence[str]:
    return ("--transactions-home=broker-fenced",)


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
            attacks.pipelines,
        ),
    ),
    Setup(
        "comparisons",
        _plain,
        (attacks.compared_headers, attacks.compared_records, attacks.headers_read_back),
        floods=False,
        most_rise=_COMPARED_RISE,
    ),
    Setup(
        "client ids",
        _long_window,
        (attacks.many_client_ids, attacks.many_client_ids_in_good_order),
        floods=False,
        most_rise=_PRODUCERS_RISE,
    ),
    Setup(
        "producers",
        _plain,
        (producer_attacks.sequence_gaps, producer_attacks.foreign_ids),
        floods=False,
        most_rise=_GAPS_RISE,
        most_wait=_SHORT_WAIT,
    ),
    Setup("transactions", _transactions, (attacks.groups, attacks.many_transactional_ids)),
    Setup("fenced", _fenced, (attacks.many_transactional_ids,), floods=False),
    Setup("rules", _rules, (attacks.refused_names, attacks.checked_names, attacks.long_names)),
    Setup("quotas", _quotas, ()),
    Setup("logins", _logins, (attacks.guesses,), floods=False, opens=False),
    Setup("TLS", _tls, (attacks.handshakes,), floods=False, opens=False, pings=False),
    Setup(
        "pages",
        _plain,
        (http_attacks.half_heads, http_attacks.metrics_at_once, http_attacks.long_numbers),
        floods=False,
        most_rise=16 << 20,
        most_wait=_SHORT_WAIT,
    ),
    Setup(
        "few files",
        _plain,
        (http_attacks.files_of_clients, http_attacks.files_of_pages),
        floods=False,
        files=256,
        most_wait=_SHORT_WAIT,
    ),
    Setup(
        "wrong broker",
        _little_memory,
        (
            broker_attacks.many_topics,
            broker_attacks.tiny_batches,
            broker_attacks.wrong_versions,
            broker_attacks.wrong_topics,
            broker_attacks.most_topics,
        ),
        floods=False,
        most_rise=_LITTLE_MEMORY * 3 // 2,
        wrong=True,
    ),
    WebhookSetup(
        "webhook",
        _plain,
        (http_attacks.slow_reviews, http_attacks.long_reviews, http_attacks.half_reviews),
        floods=False,
        most_rise=_WEBHOOK_RISE,
        most_wait=_SHORT_WAIT,
    ),
)

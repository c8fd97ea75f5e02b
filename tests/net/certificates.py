"""Certificates for tests, from an authority of their own."""

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

from kproxy.net.tls_context import TlsFiles


@dataclass
class Authority:
    """Signs certificates and puts them into a directory."""

    directory: Path

    def __post_init__(self) -> None:
        self._ca = trustme.CA()
        self.ca = self.directory / f"ca-{id(self)}.pem"
        self._ca.cert_pem.write_to_path(str(self.ca))

    def issue(self, *names: str, to: str = "kproxy") -> TlsFiles:
        """A certificate for these names or addresses, with its key in a file of its own."""
        leaf = self._ca.issue_cert(*names, common_name=to)
        certificate, key = self.directory / f"{to}.crt", self.directory / f"{to}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        private = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
        plain = serialization.NoEncryption()  # PKCS 8: Java takes no other form
        key.write_bytes(private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
        return TlsFiles(certificate, key, None, self.ca)

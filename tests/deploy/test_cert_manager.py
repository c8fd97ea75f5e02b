"""deploy/cert-manager: cert-manager takes the manifests, they fit the chart, and kproxy follows a renewal."""

import re
import ssl
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kproxy.net.tls_context import TlsContext, TlsFiles, client_context, server_context
from tests.net.certificates import Authority
from tests.support.charts import CHART, render
from tests.support.manifests import Manifest, configuration, documents, kproxy_containers, only, validate

FOLDER: Final = CHART.parents[1] / "cert-manager"
VALUES: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "values.yaml").read_text(encoding="utf-8"))
MANIFESTS: Final = documents((FOLDER / "certificates.yaml").read_text(encoding="utf-8"))
CERTIFICATES: Final = {
    found["metadata"]["name"]: found["spec"] for found in MANIFESTS if found["kind"] == "Certificate"
}
ISSUERS: Final = {found["metadata"]["name"]: found["spec"] for found in MANIFESTS if found["kind"] == "Issuer"}
#: The entries of the Secret of a Certificate whose issuer knows its authority.
ENTRIES: Final = {"tls.crt", "tls.key", "ca.crt"}
_HOUR: Final = re.compile(r"[1-9][0-9]*h")


def is_hours(value: object) -> bool:
    return isinstance(value, str) and _HOUR.fullmatch(value) is not None


def is_names(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value)


def is_key(value: object) -> bool:
    known = {
        "algorithm": ("RSA", "ECDSA", "Ed25519"),
        "size": (256, 384, 521),
        "rotationPolicy": ("Never", "Always"),
        "encoding": ("PKCS1", "PKCS8"),
    }
    return isinstance(value, dict) and all(found in known.get(name, ()) for name, found in value.items())


#: Fields of cert-manager.io/v1 that the manifests may have, and what each takes.
CERTIFICATE: Final[dict[str, Callable[[Any], bool]]] = {
    "secretName": lambda value: isinstance(value, str),
    "commonName": lambda value: isinstance(value, str) and len(value) <= 64,
    "isCA": lambda value: isinstance(value, bool),
    "dnsNames": is_names,
    "usages": lambda value: set(value) <= {"digital signature", "key encipherment", "server auth", "client auth"},
    "duration": is_hours,
    "renewBefore": is_hours,
    "privateKey": is_key,
    "issuerRef": lambda value: value.keys() <= {"name", "kind", "group"} and value["kind"] == "Issuer",
}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda found: found["kind"] + " " + found["metadata"]["name"])
def test_cert_manager_takes_it(manifest: Manifest) -> None:
    assert manifest.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert manifest["apiVersion"] == "cert-manager.io/v1"
    spec = manifest["spec"]
    if manifest["kind"] == "Issuer":
        assert spec in ({"selfSigned": {}}, {"ca": {"secretName": "kproxy-ca"}})
        return
    assert {"secretName", "issuerRef"} <= spec.keys()
    assert {"commonName", "dnsNames"} & spec.keys(), "a certificate needs a name"
    assert {name: value for name, value in spec.items() if not CERTIFICATE[name](value)} == {}
    if "renewBefore" in spec:
        assert int(spec["renewBefore"][:-1]) < int(spec["duration"][:-1])


def test_each_certificate_has_its_issuer() -> None:
    assert {spec["issuerRef"]["name"] for spec in CERTIFICATES.values()} == ISSUERS.keys()
    [authority] = [spec for spec in CERTIFICATES.values() if spec.get("isCA")]
    assert ISSUERS[authority["issuerRef"]["name"]] == {"selfSigned": {}}
    assert ISSUERS["kproxy"] == {"ca": {"secretName": authority["secretName"]}}


def test_the_gateway_reads_what_cert_manager_writes() -> None:
    manifests = render(VALUES)
    for manifest in manifests:
        validate(manifest)
    config, spec = configuration(manifests, {}), only(manifests, "StatefulSet")["spec"]["template"]["spec"]
    [volume] = [volume for volume in spec["volumes"] if volume["name"] == "kproxy-tls"]
    assert volume["secret"]["secretName"] == CERTIFICATES["kproxy-gateway"]["secretName"]
    [kproxy] = kproxy_containers(spec)
    [mount] = [mount for mount in kproxy["volumeMounts"] if mount["name"] == "kproxy-tls"]
    assert "subPath" not in mount, "the kubelet never renews a subPath"
    paths = {config.ssl_certificate_location, config.ssl_key_location, config.ssl_ca_location}
    assert paths == {Path(mount["mountPath"]) / entry for entry in ENTRIES}
    assert config.ssl_client_auth == "required"


def test_the_certificate_has_each_name_that_clients_connect_to() -> None:
    manifests = render(VALUES)
    names = [found["metadata"]["name"] for found in manifests if found["kind"] == "Service"]
    assert sorted(names) == ["edge-kproxy", "edge-kproxy-pods"]
    asked = ["edge-kproxy.kafka.svc", *(f"edge-kproxy-{index}.edge-kproxy-pods.kafka.svc" for index in range(3))]
    patterns = CERTIFICATES["kproxy-gateway"]["dnsNames"]
    assert [name for name in asked if not any(fnmatchcase(name, pattern) for pattern in patterns)] == []


def test_the_webhook_may_have_the_same_issuer() -> None:
    reference = CERTIFICATES["kproxy-gateway"]["issuerRef"]
    webhook = {"enabled": True, "certManager": {"enabled": True, "issuerRef": reference}}
    made = only(render(VALUES | {"webhook": webhook}), "Certificate")
    assert made["spec"]["issuerRef"] == reference
    assert made["spec"]["dnsNames"] == ["edge-kproxy-webhook.kafka.svc"]


class Volume:
    """A Secret as the kubelet mounts it: entries lead through ..data to a folder, which a renewal replaces."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self._folder, self._authority, self._count = folder, authority, 0
        folder.mkdir()
        self.renew()
        for name in ENTRIES:
            (folder / name).symlink_to(f"..data/{name}")
        self.files = TlsFiles(folder / "tls.crt", folder / "tls.key", None, folder / "ca.crt")

    def renew(self) -> None:
        made = self._authority.issue(*CERTIFICATES["kproxy-gateway"]["dnsNames"], to=f"kproxy-{self._count}")
        assert made.certificate is not None
        assert made.key is not None
        assert made.ca is not None
        self._count += 1
        folder = self._folder / f"..{self._count}"
        folder.mkdir()
        for name, path in (("tls.crt", made.certificate), ("tls.key", made.key), ("ca.crt", made.ca)):
            (folder / name).write_bytes(path.read_bytes())
        (self._folder / "..data_tmp").symlink_to(folder.name)
        (self._folder / "..data_tmp").replace(self._folder / "..data")


def served(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> bytes:
    """The certificate that a client of this name receives, after both have verified each other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = server.wrap_bio(to_server, to_client, server_side=True)
    other = client.wrap_bio(to_client, to_server, server_hostname=name)
    waiting = [other, one]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    found = other.getpeercert(binary_form=True)
    assert found is not None
    return found


def test_new_connections_receive_the_renewed_certificate(tmp_path: Path) -> None:
    authority, now = Authority(tmp_path), [0.0]
    volume = Volume(tmp_path / "tls", authority)
    kept = TlsContext(volume.files, lambda: server_context(volume.files, "required"), lambda: now[0])
    client = client_context(authority.issue("shipper.test", to="shipper"), checks_name=True)
    name = "edge-kproxy-0.edge-kproxy-pods.kafka.svc"
    first = served(kept.current(), client, "edge-kproxy.kafka.svc")
    assert served(kept.current(), client, name) == first
    volume.renew()
    now[0] = 1.0
    second = served(kept.current(), client, name)
    assert second != first
    assert served(kept.current(), client, name) == second

"""A certificate authority for tests, which signs servers for 127.0.0.1 and clients by name."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID


class Authority:
    """Keeps its files in `folder`: ca.pem, and <name>.pem with <name>.key for each certificate it signs."""

    def __init__(self, folder: Path, name: str = "test CA") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._certificate = self._sign(self._name, self._key.public_key(), ca=True)
        self.path = folder / "ca.pem"
        self.path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, common_name: str) -> tuple[Path, Path]:
        """Sign a certificate for `common_name`, good for a server on 127.0.0.1 too. Return the files of certificate and private key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(_name(common_name), key.public_key(), ca=False)
        paths = self._folder / f"{common_name}.pem", self._folder / f"{common_name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        store = pkcs12.serialize_key_and_certificates(
            common_name.encode(), key, certificate, [self._certificate], serialization.BestAvailableEncryption(PASSWORD.encode())
        )
        self.key_store(common_name).write_bytes(store)
        return paths

    def key_store(self, common_name: str) -> Path:
        """The PKCS 12 file with the certificate and key of `common_name`, for Java. Its password is PASSWORD."""
        return self._folder / f"{common_name}.p12"

    def trust_store(self) -> Path:
        """A PKCS 12 file by which Java trusts this authority."""
        path = self._folder / "trust.p12"
        entries = [pkcs12.PKCS12Certificate(self._certificate, b"ca")]
        path.write_bytes(pkcs12.serialize_java_truststore(entries, serialization.BestAvailableEncryption(PASSWORD.encode())))
        return path

    def _sign(self, name: x509.Name, public_key: ec.EllipticCurvePublicKey, *, ca: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if not ca:
            alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")])
            builder = builder.add_extension(alternative, critical=False)
        else:
            builder = builder.add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=True,
                    crl_sign=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
        return builder.sign(self._key, hashes.SHA256())


PASSWORD = "changeit"


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])

"""A federation's own certificates: an authority, one server, and a certificate a device.

A device makes its key where it lives and sends a request; the key never leaves it. Nobody needs openssl.
"""

import datetime
import hashlib
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from potluck.core.errors import ConfigError
from potluck.deploy.members.keyfiles import CA, CA_KEY, DEVICE_KEY, SERVER, SERVER_KEY

_AUTHORITY, _MEMBER = datetime.timedelta(days=3650), datetime.timedelta(days=730)
_SLACK = datetime.timedelta(days=1)  # clocks agree within a day
Key = ec.EllipticCurvePrivateKey


def make_authority(folder: Path, name: str) -> None:
    """A new authority, into a federation's folder."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"{name} authority")
    made = _begin(subject, subject, key.public_key(), _AUTHORITY)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    made = made.add_extension(usage, critical=True)
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    _write_key(folder / CA_KEY, key)
    (folder / CA).write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def make_server(folder: Path, host: str) -> None:
    """A certificate for the server at an address, by the folder's authority."""
    authority, signer = _read_authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    made = _begin(_name(host), authority.subject, key.public_key(), _MEMBER)
    made = made.add_extension(x509.SubjectAlternativeName(_list_names(host)), critical=False)
    made = _finish(made, authority, ExtendedKeyUsageOID.SERVER_AUTH)
    _write_key(folder / SERVER_KEY, key)
    (folder / SERVER).write_bytes(made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def make_request(folder: Path, name: str) -> bytes:
    """A new key for a device, in its folder, and the request to certify it."""
    key = ec.generate_private_key(ec.SECP256R1())
    _write_key(folder / DEVICE_KEY, key)
    request = x509.CertificateSigningRequestBuilder().subject_name(_name(name)).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def certify(folder: Path, name: str, request: bytes) -> bytes:
    """A certificate for a device, whatever name its request says; by the folder's authority."""
    authority, signer = _read_authority(folder)
    try:
        asked = x509.load_pem_x509_csr(request)
        good = asked.is_signature_valid
    except (ValueError, TypeError, InvalidSignature) as error:
        raise ConfigError(f"request of {name!r}: can't be read ({error}); join again") from None
    key = asked.public_key()
    if not good or not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigError(f"request of {name!r}: not signed by its own elliptic key; join again")
    made = _begin(_name(name), authority.subject, key, _MEMBER)
    made = _finish(made, authority, ExtendedKeyUsageOID.CLIENT_AUTH)
    return made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def find_fingerprint(certificate: bytes) -> str:
    """Of a certificate, as PEM or as it comes over the wire."""
    if certificate.startswith(b"-----"):
        loaded = x509.load_pem_x509_certificate(certificate)
        certificate = loaded.public_bytes(serialization.Encoding.DER)
    return f"sha256:{hashlib.sha256(certificate).hexdigest()}"


def write_private(path: Path, data: bytes) -> None:
    """A file that only its owner may read, from its first byte on."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _begin(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lasts: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    made = made.serial_number(x509.random_serial_number())
    return made.not_valid_before(now - _SLACK).not_valid_after(now + lasts)


def _finish(
    made: x509.CertificateBuilder, authority: x509.Certificate, use: x509.ObjectIdentifier
) -> x509.CertificateBuilder:
    made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    made = made.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    key = authority.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key), critical=False)


def _read_authority(folder: Path) -> tuple[x509.Certificate, Key]:
    try:
        certificate = x509.load_pem_x509_certificate((folder / CA).read_bytes())
        key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        fix = "`potluck deploy init` makes it"
        raise ConfigError(f"{folder}: no authority that can be read ({error}); {fix}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{folder / CA_KEY}: not a key that `potluck deploy init` made")
    return certificate, key


def _write_key(path: Path, key: Key) -> None:
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    write_private(path, key.private_bytes(serialization.Encoding.PEM, form, plain))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _list_names(host: str) -> list[x509.GeneralName]:
    try:
        return [x509.IPAddress(ipaddress.ip_address(host))]
    except ValueError:
        return [x509.DNSName(host)]

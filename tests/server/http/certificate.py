"""A server's configuration for TLS, with a certificate made on the fly."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypercorn.config import Config

from tests.listening import local_config


def over_tls(folder: Path) -> tuple[Config, ssl.SSLContext]:
    """Return a configuration with a fresh certificate, and a client's context that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    # An hour ago: OpenSSL looks at a coarser clock, which may still show the second before.
    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    certificate = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(secret)
    config = local_config()
    config.certfile, config.keyfile = str(folder / "cert.pem"), str(folder / "key.pem")
    return config, ssl.create_default_context(cafile=config.certfile)

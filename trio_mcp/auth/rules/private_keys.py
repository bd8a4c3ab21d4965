"""Private keys: what a client signs with, instead of sending a secret."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

__all__ = ["ALGORITHMS", "PrivateKeyJwt"]

ALGORITHMS = ("ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "Ed25519", "EdDSA")
"""How a client may sign; nothing symmetric, and never ``none``."""


@attrs.frozen
class PrivateKeyJwt:
    """A client's private key (``private_key_jwt``, RFC 7523): the client signs a statement, and no secret travels.

    Attributes:
        pem: The private key in PEM.
        algorithm: What it signs with, such as ``"ES256"`` or ``"RS256"``.
        key_id: The ``kid`` by which the authorization server finds the public key; None if it needs none.

    Raises:
        ValueError: If this is no private key, or none for this algorithm.
        ImportError: Without the extra ``auth``.
    """

    pem: str | bytes = attrs.field(repr=False)
    algorithm: str = "ES256"
    key_id: str | None = None

    def assertion(self, client_id: str, issuer: str, clock: Callable[[], float] = time.time) -> str:
        """Return a signed statement, good for one request, that it is this client that asks.

        Args:
            client_id: The client, who is its issuer and its subject.
            issuer: The authorization server, which is its audience.
            clock: Tells the time.
        """
        raise NotImplementedError

"""DPoP for clients (RFC 9449): a key, a proof for each request, and the nonces that servers give."""

from __future__ import annotations

import time
from collections.abc import Callable

from trio_mcp.http.headers import Headers

__all__ = ["Prover"]


class Prover:
    """Makes the proofs of one key, and remembers the nonce that each server gave last.

    Args:
        key: The private key as a JWK in JSON, as `key` has it; None makes a new one (ES256).
        clock: Tells the time.

    Raises:
        ValueError: If this is no such key.
        ImportError: Without the extra ``auth``.
    """

    def __init__(self, key: str | None = None, *, clock: Callable[[], float] = time.time) -> None:
        raise NotImplementedError

    @property
    def key(self) -> str:
        """The private key as a JWK in JSON, to be stored with the login."""
        raise NotImplementedError

    @property
    def thumbprint(self) -> str:
        """The thumbprint of the public key (RFC 7638), to which tokens are bound."""
        raise NotImplementedError

    def proof(self, method: str, url: str, token: str | None = None) -> str:
        """Return the value of the field ``DPoP`` for one sending of one request.

        Args:
            method: The HTTP method.
            url: The URL of the request; its query and fragment are left out of the proof.
            token: The access token that goes with it; None at an authorization server.
        """
        raise NotImplementedError

    def learn(self, url: str, headers: Headers, *, resource: bool = False) -> bool:
        """Remember the nonce that came with a response, and return whether it is another than was known.

        A refusal that asks for a nonce is worth another try only if this returns True.

        Args:
            url: The URL of the request.
            headers: The header fields of the response.
            resource: Whether it came from a resource server, whose nonces are its own.
        """
        raise NotImplementedError

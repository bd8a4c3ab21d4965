"""Performs a server's TLS handshakes, each within a deadline, and explains why a client's handshake failed."""

from __future__ import annotations

from typing import Any

import trio

__all__ = ["accept_tls", "tls_problem"]


async def accept_tls(stream: trio.SSLStream[Any], deadline: trio.CancelScope) -> bool:
    """Perform the server's side of a TLS handshake.

    Args:
        stream: The stream.
        deadline: A scope, not yet entered, whose deadline ends the handshake; the owner may cancel the scope, too.

    Returns:
        Whether the handshake succeeded.
    """
    with deadline:
        try:
            await stream.do_handshake()
            return True
        # Failures are not logged, because they are ordinary on a public port (scanners, clients that distrust the
        # certificate).
        except trio.BrokenResourceError:
            pass
    return False


def tls_problem(text: str, plain: str) -> str:
    """Return why a TLS handshake failed, with a hint if the server seems to have responded without TLS.

    Args:
        text: OpenSSL's error message.
        plain: How the URL of a server without TLS begins.
    """
    # Either error means that the server's bytes are not TLS. From version 3.2 on, OpenSSL reports the second one in
    # some cases.
    unlike_tls = any(each in text for each in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"))
    return f"{text}; does its URL begin with {plain}?" if unlike_tls else text

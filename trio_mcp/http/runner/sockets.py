"""Opens the sockets on which a server listens."""

from __future__ import annotations

import contextlib
import os
import socket as stdlib_socket
import stat
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import trio

from trio_mcp._log import logger
from trio_mcp._platform import AF_UNIX
from trio_mcp.http.runner.settings import Bound, ServerSettings
from trio_mcp.sockets.addresses import url_of
from trio_mcp.sockets.listening import inherited_descriptors

__all__ = ["listeners_of", "open_sockets", "url_of_socket"]


@contextlib.contextmanager
def open_sockets(settings: ServerSettings) -> Iterator[list[Bound]]:
    """Bind the sockets for the duration of a block; at its end, close them and remove the files of Unix sockets.

    Sockets that a service manager hands over replace the addresses of the settings, and so do the shared ones of the
    settings, whose files are not removed.
    """
    inherited = [] if settings.shared else inherited_descriptors()
    if inherited:
        logger.info(
            "listening on sockets passed by the service manager: %s", ", ".join(f"fd://{each}" for each in inherited)
        )
    sockets = list(settings.shared) or settings.bind(inherited)
    # The files of these sockets belong to the service manager, which may hand them over again, or to the process that
    # has bound the shared ones.
    paths = (
        [] if inherited or settings.shared else [sock.getsockname() for _, sock in sockets if sock.family == AF_UNIX]
    )
    try:
        yield sockets
    finally:
        for _, sock in sockets:
            sock.close()
        for path in paths:
            # By now, the path may lead to another kind of file, which is not removed.
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.stat(path).st_mode):
                    os.unlink(path)


def listeners_of(settings: ServerSettings, sockets: list[Bound], protocols: list[str]) -> tuple[list[Any], list[str]]:
    """Return listeners on the sockets, and the URLs; TLS listeners offer ``protocols`` by ALPN (RFC 7301)."""
    listeners: list[Any] = []
    urls: list[str] = []
    tls = settings.tls
    if tls is not None:
        # Hypercorn's configuration offers h2 even for other runners, and a client that negotiates h2 uses nothing else.
        tls.set_alpn_protocols(protocols)
    for scheme, sock in sockets:
        if scheme == "quic":
            continue
        sock.listen(settings.backlog)
        listener: Any = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        if scheme == "https":
            assert tls is not None
            # https_compatible is needed because browsers and many other clients close without a TLS close_notify; HTTP
            # itself marks the end of a body.
            listener = trio.SSLListener(listener, tls, https_compatible=True)
        listeners.append(listener)
        urls.append(url_of_socket(scheme, sock))
    return listeners, urls


def url_of_socket(scheme: str, sock: stdlib_socket.socket) -> str:
    """Return the URL at which a socket can be reached; that of a Unix socket has its path, percent-encoded."""
    # The socket's own name has the port that the system has chosen for port 0, unlike the configured name.
    name = sock.getsockname()
    if sock.family == AF_UNIX:
        return f"{scheme}+unix://{quote(name, safe='')}"
    return url_of(scheme, *name[:2])

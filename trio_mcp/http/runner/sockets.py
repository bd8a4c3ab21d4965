"""The sockets on which a server listens."""

from __future__ import annotations

import contextlib
import copy
import os
import socket as stdlib_socket
import ssl
import stat
import traceback
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import trio
from hypercorn.config import Config, Sockets

from trio_mcp._log import logger
from trio_mcp._platform import AF_UNIX, check_unix_sockets
from trio_mcp.sockets.listening import cannot_listen, inherited_descriptors

__all__ = ["listeners_of", "open_sockets"]


@contextlib.contextmanager
def open_sockets(config: Config) -> Iterator[Sockets]:
    """Bind the sockets for a block, and close them at its end; the files of Unix sockets are removed.

    Sockets that a service manager hands over replace those of ``config.bind``.
    """
    inherited = [f"fd://{descriptor}" for descriptor in inherited_descriptors()]  # as hypercorn spells them
    if inherited:
        config = copy.copy(config)
        config.bind = inherited
        logger.info("listening on the sockets of the service manager: %s", ", ".join(inherited))
    if any(bind.startswith("unix:") for bind in config.bind):
        check_unix_sockets()
    try:
        sockets = config.create_sockets()
    except OSError as exc:
        _close_abandoned(exc)
        raise cannot_listen(", ".join(config.bind), exc) from None
    everyone = [*sockets.secure_sockets, *sockets.insecure_sockets, *sockets.quic_sockets]
    # The files of inherited sockets belong to the service manager, which may hand them over again.
    paths = [] if inherited else [sock.getsockname() for sock in everyone if sock.family == AF_UNIX]
    try:
        yield sockets
    finally:
        for sock in everyone:
            sock.close()
        for path in paths:
            # Only a socket is removed: the path may hold something else by now.
            try:
                if stat.S_ISSOCK(os.stat(path).st_mode):
                    os.unlink(path)
            except OSError:
                pass


def _close_abandoned(exc: OSError) -> None:
    """Close what hypercorn opened before it failed: it leaves that to the garbage collector."""
    for frame, _ in traceback.walk_tb(exc.__traceback__):
        for value in frame.f_locals.values():
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, stdlib_socket.socket):
                    each.close()


def listeners_of(config: Config, sockets: Sockets, protocols: list[str]) -> tuple[list[Any], list[str]]:
    """Return listeners for sockets, which offer some protocols over TLS (RFC 7301, ALPN), and their URLs."""
    listeners: list[Any] = []
    urls: list[str] = []
    tls = _tls(config)
    if tls is not None:
        # Hypercorn's configuration offers h2 whatever the runner is, and a client that gets it speaks nothing else.
        tls.set_alpn_protocols(protocols)
    for scheme, group in (("https", sockets.secure_sockets), ("http", sockets.insecure_sockets)):
        for sock in group:
            sock.listen(config.backlog)
            listener: Any = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
            if scheme == "https":
                assert tls is not None
                # https_compatible: browsers and many clients close without the TLS goodbye; HTTP marks its own ends.
                listener = trio.SSLListener(listener, tls, https_compatible=True)
            listeners.append(listener)
            urls.append(_url(scheme, sock))
    return listeners, urls


def _tls(config: Config) -> ssl.SSLContext | None:
    try:
        return config.create_ssl_context()
    except OSError as exc:  # an error of OpenSSL is one, too; neither names a file
        files = {"certfile": config.certfile, "keyfile": config.keyfile, "ca_certs": config.ca_certs}
        named = ", ".join(f"{name}={path!r}" for name, path in files.items() if path is not None)
        # Of the same type: OpenSSL's numbers mean something else as numbers of the system.
        raise type(exc)(exc.errno, f"can't serve TLS with {named}: {exc.strerror or exc}") from None


def _url(scheme: str, sock: stdlib_socket.socket) -> str:
    # The socket's own name, not the configured one: it has the port that the system chose for port 0.
    name = sock.getsockname()
    if sock.family == AF_UNIX:
        return f"{scheme}+unix://{quote(name, safe='')}"
    host, port = name[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

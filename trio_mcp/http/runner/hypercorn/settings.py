"""Hypercorn's configuration: the default for its runner, and the settings that a given configuration asks for."""

from __future__ import annotations

import copy
import socket
import ssl
import time
import traceback
from functools import partial

from hypercorn.config import Config

from trio_mcp._platform import check_unix_sockets
from trio_mcp.http.framing import Fields
from trio_mcp.http.runner.settings import BACKLOG, KEEP_ALIVE, Bound, ServerSettings
from trio_mcp.sockets.listening import cannot_listen

__all__ = ["QuietConfig", "settings_from"]


class QuietConfig(Config):
    """Hypercorn's configuration without its logs and the ``Server`` header; the ``Date`` is formatted once a second."""

    errorlog = None
    include_server_header = False
    keep_alive_timeout = KEEP_ALIVE
    backlog = BACKLOG
    # The resolution of the date is a second, so it need not be formatted for every response.
    _dated: tuple[int, list[tuple[bytes, bytes]]] = (0, [])

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        # The wall clock is used on purpose, because a date is formatted.
        now = int(time.time())
        if self._dated[0] != now:
            self._dated = (now, super().response_headers(protocol))
        return self._dated[1]


def settings_from(config: Config) -> ServerSettings:
    """Return the settings that a hypercorn configuration asks for.

    Raises:
        OSError: If the certificate or another TLS file can't be loaded.
    """
    return ServerSettings(
        bind=partial(_bind, config),
        tls=_tls(config),
        backlog=config.backlog,
        response_fields=partial(_response_fields, config),
        keep_alive_timeout=config.keep_alive_timeout,
        keep_alive_requests=config.keep_alive_max_requests,
        handshake_timeout=config.ssl_handshake_timeout,
        read_timeout=config.read_timeout,
        max_head=config.h11_max_incomplete_size,
        root_path=config.root_path,
        server_names=config.server_names,
        config=config,
    )


def _response_fields(config: Config) -> Fields:
    # Hypercorn's fields name hypercorn as the server, but the response may come from one of our own runners.
    return [field for field in config.response_headers("h11") if field[0] != b"server"]


def _tls(config: Config) -> ssl.SSLContext | None:
    try:
        return config.create_ssl_context()
    except OSError as exc:  # OpenSSL's errors are OSErrors, too; none of these errors names a file
        files = {"certfile": config.certfile, "keyfile": config.keyfile, "ca_certs": config.ca_certs}
        named = ", ".join(f"{name}={path!r}" for name, path in files.items() if path is not None)
        # The type of the exception is kept, because OpenSSL's error numbers would mean something else in a plain
        # OSError.
        raise type(exc)(exc.errno, f"can't serve TLS with {named}: {exc.strerror or exc}") from None


def _bind(config: Config, inherited: list[int]) -> list[Bound]:
    if inherited:
        config = copy.copy(config)
        config.bind = [f"fd://{descriptor}" for descriptor in inherited]
    if any(bind.startswith("unix:") for bind in config.bind):
        check_unix_sockets()
    try:
        sockets = config.create_sockets()
    except OSError as exc:
        _close_abandoned(exc)
        raise cannot_listen(", ".join(config.bind), exc) from None
    groups = {"https": sockets.secure_sockets, "http": sockets.insecure_sockets, "quic": sockets.quic_sockets}
    return [(scheme, sock) for scheme, group in groups.items() for sock in group]


def _close_abandoned(exc: OSError) -> None:
    """Close the sockets that hypercorn opened before it failed: hypercorn leaves them to the garbage collector."""
    for frame, _ in traceback.walk_tb(exc.__traceback__):
        for value in frame.f_locals.values():
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, socket.socket):
                    each.close()

"""Ports that are held from the moment they are chosen, and the port that another process has chosen itself.

A port that was free a moment ago may be taken by the time a server wants it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import psutil
from hypercorn.config import Config

from trio_mcp.http.runner.hypercorn.settings import QuietConfig

__all__ = ["config_of_held", "hold", "listens_on", "local_config", "on_held_port", "port_of"]

LOOPBACK = "127.0.0.1"


def port_of(bound: socket.socket) -> int:
    """Return the port that a socket is bound to."""
    port: int = bound.getsockname()[1]
    return port


# --- for a server in this process -------------------------------------------------------------------------------


def local_config() -> QuietConfig:
    """Return the configuration of a server on this machine, whose port the system chooses."""
    config = QuietConfig()
    config.bind = [f"{LOOPBACK}:0"]
    return config


@contextlib.contextmanager
def on_held_port() -> Iterator[tuple[int, Config]]:
    """Choose a port, and yield it with the configuration of a server on it; one server may use that."""
    with socket.socket() as bound:
        bound.bind((LOOPBACK, 0))
        yield port_of(bound), _config_of(bound)


def _config_of(bound: socket.socket) -> Config:
    """Return the configuration of a server that listens on a socket, which stays open."""
    config = QuietConfig()
    config.bind = [f"fd://{bound.dup().detach()}"]  # which the server closes
    return config


# --- for a server in another process ----------------------------------------------------------------------------


def hold() -> socket.socket:
    """Choose a port for other processes of this user, and hold it for them, one at a time, until the socket is closed.

    While none of them listens, connections are refused.
    """
    held = socket.socket()
    held.bind((LOOPBACK, 0))
    # Only now, or the next socket that is bound to any port, and has this set, could get the same.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return held


def config_of_held(port: int) -> Config:
    """Return the configuration of a server on a port that another process holds for this one."""
    with socket.socket() as bound:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind((LOOPBACK, port))
        return _config_of(bound)


def listens_on(pid: int) -> int | None:
    """Return the port that a process listens on; None if it does not listen yet."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in psutil.Process(pid).net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN:
                port: int = each.laddr.port
                return port
    return None

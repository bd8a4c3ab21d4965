"""Opens the sockets on which a server listens, or takes them over from a service manager."""

from __future__ import annotations

import contextlib
import errno
import os
import socket as stdlib_socket
import stat
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import trio

from trio_mcp._addresses import is_loopback
from trio_mcp._log import logger
from trio_mcp._platform import check_unix_sockets
from trio_mcp.sockets.addresses import unix_path, url_of

__all__ = [
    "PeerCredentials",
    "cannot_listen",
    "inherited_descriptors",
    "keep_alive",
    "listen_tcp",
    "listen_unix",
    "peer_credentials",
]

FIRST_INHERITED = 3
"""The first descriptor that a service manager hands over (``SD_LISTEN_FDS_START``, sd_listen_fds(3))."""

BACKLOG = 65535
"""How many connections may wait to be accepted: as in `trio.open_tcp_listeners`, as many as the system allows."""

# These options are set because Linux's defaults take two hours to notice a peer that has vanished (tcp(7)).
KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Seconds of silence before the system probes whether the peer is still there, seconds between two probes, and how many
probes may go unanswered. Arbitrary choices: a peer that has vanished is noticed after two minutes."""

REMEDIES = {
    errno.EADDRINUSE: "is another server running there? Choose another port",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "ports below 1024 need special privileges; choose another one",
}
"""The advice for a network address that can't be bound, keyed by the error number."""


class PeerCredentials(NamedTuple):
    """The process at the other end of a Unix socket, according to the system (``SO_PEERCRED``, unix(7)).

    Attributes:
        pid: The id of the process that connected. That process may have ended since, and its id may belong to another
            one.
        uid: The id of the user as which the process ran.
        gid: The id of the group as which the process ran.
    """

    pid: int
    uid: int
    gid: int


def peer_credentials(sock: Any) -> PeerCredentials | None:
    """Return the credentials of the process at the other end of a Unix socket; None on systems other than Linux."""
    option = getattr(stdlib_socket, "SO_PEERCRED", None)
    if option is None:
        return None
    # The option returns the kernel's `struct ucred`: three numbers of four bytes, of which only the process id has a
    # sign.
    return PeerCredentials(*struct.unpack("iII", sock.getsockopt(stdlib_socket.SOL_SOCKET, option, 12)))


def keep_alive(sock: Any) -> None:
    """Make the system probe for a peer that has vanished."""
    with contextlib.suppress(OSError):  # the peer may be gone already
        sock.setsockopt(stdlib_socket.SOL_SOCKET, stdlib_socket.SO_KEEPALIVE, 1)
        for name, value in KEEP_ALIVE.items():
            # Not every system has all three options: on macOS, TCP_KEEPIDLE has another name.
            if hasattr(stdlib_socket, name):
                sock.setsockopt(stdlib_socket.IPPROTO_TCP, getattr(stdlib_socket, name), value)


def cannot_listen(where: str, exc: OSError) -> OSError:
    """Return the error for a network address that can't be bound, with advice.

    Args:
        where: The address.
        exc: The exception that was raised.
    """
    remedy = REMEDIES.get(exc.errno or 0)
    return OSError(exc.errno, f"can't listen on {where}: {exc.strerror or exc}{f'; {remedy}' if remedy else ''}")


def inherited_descriptors() -> list[int]:
    """Return the sockets that a service manager has handed over, and remove the environment variables that name them.

    The protocol is systemd's socket activation, sd_listen_fds(3), which launchd wrappers and others use as well: there
    are ``LISTEN_FDS`` sockets from descriptor 3 on, if ``LISTEN_PID`` is this process.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    # Comparing the process id guards against variables that were meant for a parent process, which has not removed
    # them.
    count = os.environ.get("LISTEN_FDS", "")
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):  # child processes must not see them
        os.environ.pop(name, None)
    # `isdigit` alone would accept digits such as ², for which `int` raises an exception.
    if not (count.isascii() and count.isdigit() and len(count) < 5):
        raise OSError(errno.EINVAL, f"can't listen: LISTEN_FDS must be a number, got {count!r}")
    descriptors = range(FIRST_INHERITED, FIRST_INHERITED + int(count))
    for descriptor in descriptors:
        # The descriptors stay open across `exec`, but a process that a handler starts must not inherit them, because it
        # would keep the port open.
        os.set_inheritable(descriptor, False)
    return list(descriptors)


def _inherited(*families: int) -> list[trio.SocketListener]:
    sockets = [stdlib_socket.socket(fileno=descriptor) for descriptor in inherited_descriptors()]
    if any(sock.family not in families for sock in sockets):
        for sock in sockets:
            sock.close()
        raise OSError(
            errno.EINVAL, "can't listen: the service manager has handed over a socket of the wrong address family"
        )
    if sockets:
        logger.info("listening on %d socket(s) passed by the service manager", len(sockets))
    for sock in sockets:
        # The service manager may only have bound the socket. If it is listening already, the call only sets the
        # backlog.
        sock.listen(BACKLOG)
    return [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in sockets]


@contextlib.asynccontextmanager
async def listen_tcp(
    host: str, port: int, *, tls: bool, allow_remote: bool
) -> AsyncIterator[tuple[list[trio.SocketListener], str]]:
    """Listen on an address for the duration of a block; yield the listeners, and the URL of the first.

    Raises:
        OSError: If the address can't be bound.
        ValueError: If other machines could reach the server without TLS, and that is not allowed.
    """
    listeners = _inherited(stdlib_socket.AF_INET, stdlib_socket.AF_INET6)
    if not listeners:
        try:
            listeners = await trio.open_tcp_listeners(port, host=host)
        except OSError as exc:
            raise cannot_listen(f"{host}:{port}", exc) from None
    async with contextlib.AsyncExitStack() as stack:
        for listener in listeners:
            await stack.enter_async_context(listener)
        names = [listener.socket.getsockname() for listener in listeners]
        # The bound addresses are checked instead of `host`, because a name may resolve to any address, and a service
        # manager chooses its own.
        for name in names:
            if not (tls or allow_remote or is_loopback(name[0])):
                raise ValueError(
                    f"{name[0]} can be reached from other machines, where anyone could call the tools and read the "
                    "traffic: pass ssl_context=, or allow_remote=True"
                )
        yield listeners, url_of("tls" if tls else "tcp", *names[0][:2])


@contextlib.asynccontextmanager
async def listen_unix(path: str | os.PathLike[str], mode: int) -> AsyncIterator[tuple[list[trio.SocketListener], str]]:
    """Listen on a Unix socket for the duration of a block; yield the listeners, and the URL of the first.

    Raises:
        OSError: If the path can't be bound, for example because another server is already listening on it.
        ValueError: If a socket can't have this path.
    """
    check_unix_sockets()
    name = unix_path(path)
    listeners = _inherited(stdlib_socket.AF_UNIX)
    async with contextlib.AsyncExitStack() as stack:
        # No file is made or removed for inherited sockets: their files belong to the service manager, which may hand
        # the sockets over again.
        if not listeners:
            sock = stack.enter_context(_socket_file(name, mode))
            listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(sock))]
        for listener in listeners:
            await stack.enter_async_context(listener)
        yield listeners, f"unix:{listeners[0].socket.getsockname()}"


@contextlib.contextmanager
def _socket_file(path: str, mode: int) -> Iterator[stdlib_socket.socket]:
    path = unix_path(os.path.abspath(path))  # the absolute path may be too long even if the relative one is not
    # A file that a server has left behind is removed, because `bind` refuses any path that exists.
    _remove_stale(path)
    with stdlib_socket.socket(stdlib_socket.AF_UNIX, stdlib_socket.SOCK_STREAM) as sock:
        try:
            sock.bind(path)
        except OSError as exc:
            raise OSError(exc.errno, f"can't listen on {path}: {exc.strerror or exc}") from None
        # When the block ends, only the device and the inode show whether the file is still the one that was made now.
        own = os.lstat(path)
        try:
            # The permissions are set before the socket listens: until then no client can connect, whatever permissions
            # the umask has left.
            os.chmod(path, mode)
            sock.listen(BACKLOG)
            yield sock
        finally:
            # The file is removed only if it is still our own, because another server may have taken the path in the
            # meantime.
            with contextlib.suppress(OSError):
                if os.path.samestat(own, os.lstat(path)):
                    os.unlink(path)


def _remove_stale(path: str) -> None:
    """Remove a socket that a server has left behind.

    Raises:
        OSError: If another server is listening at the path, or something other than a socket is there.
    """
    try:
        # `lstat` is used because `stat` would follow a symbolic link: the link would be taken for the socket to which
        # it points, and removed.
        found = os.lstat(path)
    except OSError:
        return  # if the folder is missing, `bind` reports that
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(errno.EEXIST, f"can't listen on {path}: the path exists, but is not a socket")
    with stdlib_socket.socket(stdlib_socket.AF_UNIX, stdlib_socket.SOCK_STREAM) as probe:
        # `connect` must not wait, even if the backlog of the server at this path is full.
        probe.setblocking(False)
        try:
            # Only a refused connection proves that no server is listening.
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:
            pass
        except OSError as exc:
            raise OSError(exc.errno, f"can't listen on {path}: {exc.strerror or exc}") from None
    raise OSError(errno.EADDRINUSE, f"can't listen on {path}: another server is already listening there")

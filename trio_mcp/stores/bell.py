"""A bell beside a file: it wakes the other processes that use the file, and says nothing else."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NoReturn

import trio

__all__ = ["Bell"]

LONGEST: Final = 100
"""Bytes of a socket's address; the system allows a few more (``sun_path`` in `unix(7)`)."""

MANY: Final = 100
"""How many sockets one `Bell.ring` reaches (arbitrary); the others look by themselves."""

_OWN: Final = secrets.token_hex(4)
"""The prefix of the names of this process's sockets. Processes in several containers may have the same id."""


class Bell:
    """The datagram sockets in a folder beside a file, one for each process that wants to be woken.

    A lost message does no harm, because each process looks at the file now and then in any case. Only the owner can use
    the folder (0700) and the sockets (0600).

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self._folder = Path(f"{path}-bells")

    def ring(self) -> None:
        """Wake the other processes. Returns at once, from any thread."""
        try:
            names = os.listdir(self._folder)
        except OSError:  # no process hears
            return
        others = [name for name in names if not name.startswith(_OWN)][:MANY]
        if not others:
            return
        with _datagrams() as sender, self._prefix() as prefix:
            for name in others:
                try:
                    sender.sendto(b"!", prefix + name)
                except ConnectionRefusedError:  # its process was killed
                    with contextlib.suppress(OSError):
                        (self._folder / name).unlink()
                except OSError:  # its process has ended meanwhile, or has enough wake-ups waiting
                    pass

    async def hear(self, woken: Callable[[], object]) -> NoReturn:
        """Call a function whenever another process rings, until cancelled.

        Where the system has no such sockets, or the folder can't be used, the function is never called.
        """
        await trio.lowlevel.checkpoint()
        try:
            bell, path = self._hang()
        except (OSError, AttributeError):
            await trio.sleep_forever()
        try:
            with bell:
                while True:
                    await trio.lowlevel.wait_readable(bell)
                    _empty(bell)
                    woken()
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
            with contextlib.suppress(OSError):  # others use it
                self._folder.rmdir()

    def _hang(self) -> tuple[socket.socket, Path]:
        """Return a socket in the folder, and its path.

        Raises:
            OSError: If the folder can't be used.
        """
        name = f"{_OWN}-{secrets.token_hex(4)}"
        bell = _datagrams()
        try:
            for attempt in range(2):
                with contextlib.suppress(FileExistsError):
                    self._folder.mkdir(mode=0o700)
                found = self._folder.lstat()
                if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                    raise PermissionError(f"{self._folder} is not a folder of this user's alone")
                try:
                    with self._prefix() as prefix:
                        bell.bind(prefix + name)
                    break
                except FileNotFoundError:  # another process has just removed the folder
                    if attempt:
                        raise
            path = self._folder / name
            path.chmod(0o600)
        except BaseException:
            bell.close()
            raise
        return bell, path

    @contextlib.contextmanager
    def _prefix(self) -> Iterator[str]:
        """Yield what precedes the name of a socket in its address, which must be short."""
        prefix = f"{self._folder}/"
        if len(os.fsencode(prefix)) + 20 <= LONGEST:
            yield prefix
            return
        folder = os.open(self._folder, os.O_DIRECTORY | os.O_RDONLY)
        try:
            yield f"/proc/self/fd/{folder}/"
        finally:
            os.close(folder)


def _empty(bell: socket.socket) -> None:
    """Take all that has come, for which one look is enough."""
    with contextlib.suppress(BlockingIOError):
        while True:
            bell.recv(1)


def _datagrams() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made

"""`KeyRing`: the keys of several processes in a file, to which a new one is added while they run."""

from __future__ import annotations

import base64
import os
import secrets
import stat
import time
from typing import Final, Self, TypeAlias

import attrs

from trio_mcp._log import logger
from trio_mcp._platform import FILES_HAVE_OWNERS

__all__ = ["KeyRing"]

DELAY: Final = 60.0
"""Seconds after which a new key signs, so that all processes have read it by then."""

LOOK: Final = 10.0
"""Seconds after which the file is looked at again."""

SHORTEST: Final = 32
"""The minimum length of a key, in bytes: that of a SHA-256 digest (RFC 2104, section 3)."""

MOST_KEYS: Final = 100
"""How many keys a file may have (arbitrary): a state is compared with each key that is accepted."""

MOST_BYTES: Final = 64 * 1024
"""How long a file may be (arbitrary)."""

_Keys: TypeAlias = tuple[tuple[int, bytes], ...]
"""Keys, each with the time at which it was made; the oldest comes first."""


@attrs.define(eq=False)
class KeyRing:
    """The keys that several processes sign with, read from a file: ``InputOptions(key=KeyRing.file("desk.keys"))``.

    The file has a line for each key: when it was made, in seconds since the epoch, and the key, of at least 32 bytes,
    in Base64 or Base64url. `add` adds one. A key signs from 60 seconds after it was made until the next one does; the
    oldest one need not wait. What a key has signed is accepted for as long as it is valid. So add a key to rotate, at
    any time, and later delete the lines of the older ones; to revoke a key, delete its line.

    Only the file's owner may be able to read it. It is read when a server starts; an error in it is then raised. It is
    looked at again when a key is needed, at most every 10 seconds; on an error, the keys that were read before stay,
    and the error is logged once.
    """

    _path: str
    _keys: _Keys = attrs.field(default=(), init=False, repr=False)
    _seen: tuple[int, ...] | None = attrs.field(default=None, init=False, repr=False)
    _looked_at: float = attrs.field(default=0.0, init=False, repr=False)
    _told: str | None = attrs.field(default=None, init=False, repr=False)

    @classmethod
    def file(cls, path: str | os.PathLike[str]) -> Self:
        """Return the ring of a file, which is first read when a server starts.

        Args:
            path: The path of the file.

        Raises:
            TypeError: If it is not a path.
        """
        if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
            raise TypeError(f"path must be a string or a path, got {path!r}")
        return cls(os.path.abspath(path))

    @staticmethod
    def add(path: str | os.PathLike[str]) -> None:
        """Add a new random key to a file. A missing file is created, readable only by its owner.

        Args:
            path: The path of the file.

        Raises:
            ValueError: If others may read the file.
            OSError: If it can't be written.
        """
        key = base64.urlsafe_b64encode(secrets.token_bytes(SHORTEST)).rstrip(b"=")
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _FLAGS, 0o600)
        with open(descriptor, "r+b", buffering=0) as file:
            size = _check_closed(os.fspath(path), os.fstat(descriptor)).st_size
            file.seek(max(size - 1, 0))
            line = b"%d %b\n" % (time.time(), key)
            # The whole line is written at once, so that no process reads a part of it.
            file.write(line if file.read(1) in (b"", b"\n") else b"\n" + line)
            os.fsync(descriptor)

    def check(self, now: float) -> None:
        """Read the file.

        Args:
            now: Seconds since the epoch.

        Raises:
            ValueError: If the file can't be used.
        """
        self._looked_at = now
        try:
            descriptor = os.open(self._path, os.O_RDONLY | _FLAGS)
            with open(descriptor, "rb", buffering=0) as file:
                found = _check_closed(self._path, os.fstat(descriptor))
                content = file.read(MOST_BYTES + 1)
        except OSError as exc:
            raise ValueError(f"the file of keys {self._path} can't be read: {exc.strerror or exc}") from None
        keys = _parsed(self._path, content)
        if keys[0][0] > now:
            raise ValueError(
                f"the file of keys {self._path} has no key that may sign yet: the earliest time in it, {keys[0][0]},"
                " lies in the future; check the clock of this machine, or write an earlier time"
            )
        self._keys, self._seen, self._told = keys, _stamp(found), None

    def keys(self, now: float, lifetime: float) -> tuple[bytes, ...]:
        """Return the keys that are accepted; the first one signs.

        Args:
            now: Seconds since the epoch.
            lifetime: For how many seconds after it was signed something may be accepted.

        Raises:
            ValueError: If the file has never been read, and can't be used.
        """
        if not self._keys:
            self.check(now)
        elif abs(now - self._looked_at) >= LOOK:
            self._look(now)
        # The oldest key signs from the start: no other could sign before it.
        starts = [made + DELAY if place else float(made) for place, (made, _) in enumerate(self._keys)]
        signing = max(sum(start <= now for start in starts) - 1, 0)
        accepted = [self._keys[signing][1]]
        for place, (_, key) in enumerate(self._keys):
            # A key that does not sign here yet may do so in a process whose clock is ahead.
            if place > signing or (place < signing and starts[place + 1] + lifetime >= now):
                accepted.append(key)
        return tuple(accepted)

    def _look(self, now: float) -> None:
        """Read the file again if it has changed; keep the keys if it can't be used."""
        self._looked_at = now
        try:
            if _stamp(os.stat(self._path)) == self._seen:
                self._told = None
                return
        except OSError:
            pass  # `check` finds the words
        try:
            self.check(now)
        except ValueError as exc:
            if self._told != str(exc):
                self._told = str(exc)
                logger.error("%s; the keys that were read before stay in use", exc)


# Without O_NONBLOCK, opening a named pipe would wait for a writer.
_FLAGS: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    """Return what differs when a file has changed, or who may read it."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _check_closed(path: str, found: os.stat_result) -> os.stat_result:
    """Check that something is a file, and closed to others.

    Raises:
        ValueError: If it is not.
    """
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"the file of keys {path} is not a file: give the path of a file")
    if not FILES_HAVE_OWNERS:
        return found
    if found.st_uid not in (0, os.geteuid()):
        raise ValueError(
            f"the file of keys {path} belongs to another user (uid {found.st_uid}): make a file of your own"
        )
    if found.st_mode & 0o077:
        raise ValueError(
            f"the file of keys {path} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}): run chmod 600"
            f" {path}; if another user may have read it, replace its keys"
        )
    return found


def _parsed(path: str, content: bytes) -> _Keys:
    """Return the keys of a file.

    Raises:
        ValueError: If there are no keys, or a line is malformed; the text names the line, and shows nothing of it.
    """
    if len(content) > MOST_BYTES:
        raise ValueError(f"the file of keys {path} has more than {MOST_BYTES} bytes: delete the lines of old keys")
    found = []
    for number, line in enumerate(content.split(b"\n"), 1):
        parts = line.split()
        if not parts:
            continue
        if (entry := _entry(parts)) is None:
            raise ValueError(
                f"the file of keys {path} can't be read, because of line {number}: each line must have the time when"
                " the key was made, in seconds since the epoch, and the key, at least 32 bytes in Base64"
            )
        found.append(entry)
    if not found:
        raise ValueError(
            f"the file of keys {path} has no keys: add one, with"
            f" python -c 'from trio_mcp.stores import KeyRing; KeyRing.add({path!r})'"
        )
    if len(found) > MOST_KEYS:
        raise ValueError(f"the file of keys {path} has more than {MOST_KEYS} keys: delete the lines of old ones")
    return tuple(sorted(found))


def _entry(parts: list[bytes]) -> tuple[int, bytes] | None:
    if len(parts) != 2 or not parts[0].isdigit() or len(parts[0]) > 12:
        return None
    text = parts[1].rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
    try:
        key = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except ValueError:
        return None
    return (int(parts[0]), key) if len(key) >= SHORTEST else None

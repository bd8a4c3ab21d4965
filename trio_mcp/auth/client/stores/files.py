"""A store that keeps logins in files that only their owner can read."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import trio

from trio_mcp._log import logger
from trio_mcp._platform import FILES_HAVE_OWNERS, sync_folder
from trio_mcp.auth.client.stores.locks import file_locked
from trio_mcp.errors import AuthorizationError

__all__ = ["FileTokens", "default_folder"]

MAX_FILE: Final = 1024 * 1024
"""The maximum size of a file, in bytes. An arbitrary choice: a login takes about 10 KiB."""
LEFT_BEHIND: Final = 60.0
"""The age, in seconds, from which a temporary file counts as left behind by a killed process.

An arbitrary choice: writing a file takes a few milliseconds.
"""

_NAME: Final = re.compile(r"[0-9a-f]{32}\.json")
_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
# This flag keeps `open` from blocking if there is a named pipe in place of the file.
_NONBLOCK: Final = getattr(os, "O_NONBLOCK", 0)


def default_folder() -> Path:
    """Return the default folder for logins (XDG Base Directory Specification)."""
    data = os.environ.get("XDG_DATA_HOME") or ""
    # The specification says of a relative path: "All paths must be absolute. … consider the path invalid and ignore
    # it."
    base = Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share"
    return base / "trio-mcp" / "logins"


class FileTokens:
    """A store in a folder with one file for each login; several processes may share it.

    The folder has mode 0700 and its files 0600. The store refuses a file that others could read or have put there (a
    symbolic link, another owner, a wider mode) or that is damaged, with an error that names it. Such a file never
    counts as a missing login.

    Args:
        folder: The folder, created if need be; by default ``trio-mcp/logins`` in ``$XDG_DATA_HOME``, or else in
            ``~/.local/share``.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = default_folder() if folder is None else Path(folder)

    def __repr__(self) -> str:
        return f"FileTokens({str(self.folder)!r})"

    async def load(self, key: str) -> str | None:
        """Return the text that is stored under a key, or None.

        Raises:
            AuthorizationError: If the file is damaged, can be read by others, or belongs to someone else.
        """
        return await trio.to_thread.run_sync(self._load, key)

    async def save(self, key: str, text: str | None) -> None:
        """Store a text under a key, atomically and safely on disk; None removes the file.

        Raises:
            AuthorizationError: If the file can't be written.
        """
        # The thread is not abandoned on cancellation, because it could replace the file after a later call has done so.
        await trio.to_thread.run_sync(self._save, key, text)

    @contextlib.asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Return a context manager that locks a key, for one task at a time in all processes that share the folder.

        Raises:
            AuthorizationError: If the lock file can't be opened, or locked.
        """
        path = self._path(key).with_suffix(".lock")
        async with contextlib.AsyncExitStack() as stack:
            # Only locking errors are explained: an `OSError` from the caller's block has nothing to do with the store.
            with _explained(path, "locked"):
                self._make_folder()
                await stack.enter_async_context(file_locked(str(path)))
            yield

    async def keys(self) -> list[str]:
        """Return the keys of all stored texts, sorted.

        A file that is damaged, can be read by others, or belongs to someone else is logged, and left out.

        Raises:
            AuthorizationError: If the folder can't be read.
        """
        return await trio.to_thread.run_sync(self._keys)

    def _path(self, key: str) -> Path:
        # The file is not named after the key, because URLs contain slashes and may be too long for a file name; the key
        # itself is in the file.
        return self.folder / _name_of(key)

    def _load(self, key: str) -> str | None:
        found = _read(self._path(key)) if self._has_folder() else None
        return found and found[1]

    def _keys(self) -> list[str]:
        if not self._has_folder():
            return []
        with _explained(self.folder, "read"):
            names = [name for name in os.listdir(self.folder) if _NAME.fullmatch(name)]
        keys = []
        for name in names:
            # One bad file must not keep the other logins from being listed, or from being signed out.
            try:
                found = _read(self.folder / name)
            except AuthorizationError as exc:
                logger.warning("%s", exc)
                continue
            if found is not None:  # the file may have been removed meanwhile
                keys.append(found[0])
        return sorted(keys)

    def _save(self, key: str, text: str | None) -> None:
        path = self._path(key)
        with _explained(path, "written"):
            if text is None:
                if self._has_folder():
                    path.unlink(missing_ok=True)
                    # A login that was dropped must not come back after a power failure.
                    sync_folder(self.folder)
                return
            self._make_folder()
            self._remove_leftovers(path)
            _write(path, json.dumps({"trio_mcp": 1, "key": key, "text": text}).encode())

    def _has_folder(self) -> bool:
        """Return whether the folder exists; raise an error if it is not the user's own."""
        try:
            # `stat` is not used, because it would follow a link, which may lead to a folder that others can read.
            found = os.lstat(self.folder)
        except FileNotFoundError:
            return False
        except OSError as exc:
            raise _refused(self.folder, f"can't be read: {exc.strerror}") from None
        _check(self.folder, found, stat.S_ISDIR, "folder", 0o700)
        return True

    def _make_folder(self) -> None:
        if not self._has_folder():
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            # The folder is checked once more: `exist_ok` accepts any folder that another process has made in the
            # meantime.
            self._has_folder()

    def _remove_leftovers(self, path: Path) -> None:
        """Remove the temporary files that a killed process has left behind."""
        for name in os.listdir(self.folder):
            if name.startswith(f".{path.name}."):
                with contextlib.suppress(FileNotFoundError):
                    if os.lstat(self.folder / name).st_mtime < time.time() - LEFT_BEHIND:
                        os.unlink(self.folder / name)


def _name_of(key: str) -> str:
    """Return the name of the file for a key."""
    return f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _write(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader finds the whole new file or the old one, even after an interruption."""
    # The temporary file is in the same folder, since the replacement is atomic only within a file system.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # with mode 0600
    try:
        with open(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            # The content reaches the disk before the new name does: otherwise, the file could be empty after a power
            # failure.
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    # The new name has to reach the disk, too: from here on the caller relies on the new file, because the refresh token
    # in the old one is used up.
    sync_folder(path.parent)


def _read(path: Path) -> tuple[str, str] | None:
    """Return the key and the text of a file; None if there is no such file."""
    with _explained(path, "read"):
        try:
            descriptor = os.open(path, os.O_RDONLY | _NOFOLLOW | _NONBLOCK)
        except FileNotFoundError:
            return None
        try:
            # The open file is checked, and not the path, which may lead to another file by now.
            _check(path, os.fstat(descriptor), stat.S_ISREG, "file", 0o600)
            with open(descriptor, "rb", closefd=False) as file:
                # A file beyond the limit is cut off. The rest can't be parsed, so the file counts as damaged.
                content = file.read(MAX_FILE + 1)
        finally:
            # `open` would not close the descriptor if the path led to a folder.
            os.close(descriptor)
    try:
        found = json.loads(content)
        key, text = found["key"], found["text"]
        whole = found["trio_mcp"] == 1 and isinstance(key, str) and isinstance(text, str)
        # The name is checked, because a copy of this file under another name would count as the login at another
        # server.
        whole = whole and path.name == _name_of(key)
        # JSON can contain a lone surrogate, which can be neither hashed nor printed.
        text.encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise _refused(path, "is damaged, or was not written by trio_mcp", "remove it, and sign in again")
    return key, text


def _check(path: Path, found: os.stat_result, is_kind: Callable[[int], bool], kind: str, mode: int) -> None:
    """Check that a file or folder belongs to the user, and is closed to others."""
    if stat.S_ISLNK(found.st_mode):
        raise _refused(path, "is a symbolic link", "pass the path that it leads to")
    if not is_kind(found.st_mode):
        raise _refused(path, f"is not a {kind}", "remove it")
    if FILES_HAVE_OWNERS and found.st_uid != os.geteuid():
        raise _refused(path, f"belongs to another user (uid {found.st_uid})", "remove it, or use another folder")
    if FILES_HAVE_OWNERS and found.st_mode & 0o077:
        now = stat.S_IMODE(found.st_mode)
        raise _refused(
            path,
            f"is open to other users (mode {now:04o})",
            f"if no other user has read or changed it, run chmod {mode:o} {path}",
        )


@contextlib.contextmanager
def _explained(path: Path, done: str) -> Iterator[None]:
    """Turn an `OSError` in the block into an `AuthorizationError` that names the path."""
    try:
        yield
    except OSError as exc:
        # This error means that O_NOFOLLOW refused a symbolic link.
        if exc.errno == errno.ELOOP:
            raise _refused(path, "is a symbolic link", "remove it") from None
        raise _refused(path, f"can't be {done}: {exc.strerror or exc}") from None


def _refused(path: Path, problem: str, advice: str = "") -> AuthorizationError:
    return AuthorizationError("store", f"{path} {problem}", advice=advice)

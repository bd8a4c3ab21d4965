"""Writes files whole: under a temporary name beside the old file, which they then replace in one step."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["PRIVATE", "temporary", "write_all"]

PRIVATE = 0o600
"""The permissions of a new file that only its owner may read."""


@contextlib.contextmanager
def temporary(file: Path, content: bytes, mode: int = PRIVATE) -> Iterator[Path]:
    """Yield the path of a new file beside another, with a content; at the end it is deleted, unless it has been moved.

    Args:
        file: The other file, which need not exist.
        content: The content.
        mode: The permissions, if there is no other file; otherwise, the new file gets those of the other.
    """
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with open(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(descriptor)
        os.chmod(name, stat.S_IMODE(file.stat().st_mode) if file.exists() else mode)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def write_all(files: Mapping[Path, bytes]) -> None:
    """Write files, and make the folders that they need; no file replaces another before all have been written.

    Raises:
        OSError: If one can't be written. Then no file is changed, unless the last step, the renaming, fails.
    """
    mask = os.umask(0)
    os.umask(mask)
    made: list[Path] = []
    try:
        with contextlib.ExitStack() as stack:
            ready = {}
            for file, content in files.items():
                # A symbolic link is followed.
                target = Path(os.path.realpath(file))
                missing = [folder for folder in (target.parent, *target.parent.parents) if not folder.exists()]
                for folder in reversed(missing):
                    folder.mkdir()
                    made.append(folder)
                ready[target] = stack.enter_context(temporary(target, content, 0o666 & ~mask))
            for target, written in ready.items():
                os.replace(written, target)
    except BaseException:
        for folder in reversed(made):
            with contextlib.suppress(OSError):  # the folder is not empty, as a file in it has been renamed already
                folder.rmdir()
        raise

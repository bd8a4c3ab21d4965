"""Finds out which features the platform lacks (mainly Windows), and replaces some of them."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from pathlib import Path
from typing import Final

import trio

from trio_mcp.errors import TransportError

__all__ = [
    "AF_UNIX",
    "FILES_HAVE_OWNERS",
    "SOCKETS_ARE_FILES",
    "boot_id",
    "check_pipes",
    "check_unix_sockets",
    "network_file_system",
    "sync_folder",
    "try_to_lock",
    "unlock",
]

AF_UNIX: Final[int | None] = getattr(socket, "AF_UNIX", None)
"""The address family of Unix sockets; None where Python does not support them."""

# Where a socket's number is a file descriptor, transports call `os.read` and `os.write` on it, which bypasses some
# layers.
SOCKETS_ARE_FILES: Final[bool] = sys.platform != "win32"
"""Whether a socket's number is a file descriptor."""

FILES_HAVE_OWNERS: Final[bool] = sys.platform != "win32"
"""Whether files have an owner and a mode, and folders can be opened."""

INSTEAD = "use HTTP, WebSocket or TCP instead, such as server.run('http') and Client('http://127.0.0.1:8000/mcp')"


def check_pipes() -> None:
    """Check that Trio supports pipes on this platform; stdio needs them.

    Raises:
        TransportError: If it does not; the message says what to use instead.
    """
    if not hasattr(trio.lowlevel, "FdStream"):
        raise TransportError(
            f"trio_mcp can't use stdio on {sys.platform}, where trio.lowlevel.FdStream is missing: {INSTEAD}"
        )


def check_unix_sockets() -> None:
    """Check that Python supports Unix sockets on this platform.

    Raises:
        TransportError: If it does not; the message says what to use instead.
    """
    if AF_UNIX is None:
        raise TransportError(f"Python does not support Unix sockets on {sys.platform}: {INSTEAD}")


def boot_id() -> str:
    """Return what tells one start of this machine from every other, the same for all its processes."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a container may hide it
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    if sys.platform == "darwin":
        import ctypes

        text, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
        if ctypes.CDLL(None).sysctlbyname(b"kern.bootsessionuuid", text, ctypes.byref(size), None, 0) == 0:
            return text.value.decode()
    # The time at which the monotonic clock began is not exact, and moves when the wall clock is set.
    return f"about {round((time.time() - time.monotonic()) / 600)}"


NETWORK_FILE_SYSTEMS: Final = frozenset(
    (
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "glusterfs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "lustre",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
    )
)
"""The types of the file systems, as Linux names them, that have no memory shared by processes on several machines."""


def network_file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """Return the type of the network file system that a file lies on; None if it lies on none, or that is unknown.

    Args:
        path: The file.
        mounts: The list of what is mounted, as Linux has it (``man 5 proc_pid_mountinfo``).
    """
    try:
        device, lines = path.stat().st_dev, mounts.read_text(errors="replace").splitlines()
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    kinds = {line.partition(" - ")[2].split()[0] for line in lines if line.split()[2] == wanted}
    return next(iter(kinds & NETWORK_FILE_SYSTEMS), None)


def sync_folder(folder: Path) -> None:
    """Write a folder's own entries to disk, so that new and renamed files survive a crash; on Windows, do nothing."""
    if FILES_HAVE_OWNERS:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# The functions import `msvcrt` and `fcntl` where they need them, because each of the two modules exists only on one
# kind of system.
def try_to_lock(descriptor: int) -> bool:
    """Try to lock an open file without waiting; return False if it is already locked elsewhere."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
    else:
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def unlock(descriptor: int) -> None:
    """Release the lock that `try_to_lock` has taken on an open file."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)

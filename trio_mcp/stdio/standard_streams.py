"""This process's standard streams as a wire: moved to private descriptors, and harmless things put in their place."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

import trio

from trio_mcp.errors import LocalProtocolError, TransportError
from trio_mcp.stdio.descriptors import PipeReader, SharedStream, is_pollable

__all__ = ["private_streams"]

_in_use = False


@contextlib.contextmanager
def private_streams() -> Iterator[tuple[trio.abc.ReceiveStream, trio.abc.SendStream]]:
    """Take descriptors 0 and 1 away from everybody else in this process, for as long as the block runs.

    Meanwhile 0 is empty, and 1 is standard error. Where standard error is the wire itself (``2>&1``), 1 and 2 lead
    nowhere; not so on a terminal, where somebody may be looking.

    Raises:
        LocalProtocolError: They are taken already.
        TransportError: Standard input or output is closed.
    """
    global _in_use
    if _in_use:
        raise LocalProtocolError("this process serves its standard streams already")
    for fd, name in enumerate(("input", "output")):
        if not _is_open(fd):
            raise TransportError(f"there is no standard {name} to serve: it is closed")
    _flush()
    with contextlib.ExitStack() as cleanup:  # undone from the last line to the first
        stdin, stdout = _take(0, cleanup), _take(1, cleanup)
        null = os.open(os.devnull, os.O_RDWR)
        cleanup.callback(os.close, null)
        if not _is_open(2):
            replacements = {0: null, 1: null}
        elif os.path.samestat(os.fstat(1), os.fstat(2)) and not os.isatty(1):
            replacements = {0: null, 1: null, 2: null}
        else:
            replacements = {0: null, 1: 2}
        for fd, replacement in replacements.items():
            kept = os.dup(fd)
            cleanup.callback(os.close, kept)
            cleanup.callback(os.dup2, kept, fd)
            os.dup2(replacement, fd)
        cleanup.callback(_flush)
        _in_use = True
        try:
            yield PipeReader(stdin) if isinstance(stdin, trio.lowlevel.FdStream) else stdin, stdout
        finally:
            _in_use = False


def _is_open(fd: int) -> bool:
    # What was closed when Python started is None here, and its number may have become anything since.
    if (sys.__stdin__, sys.__stdout__, sys.__stderr__)[fd] is None:
        return False
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _flush() -> None:
    """Send what was printed where it belongs, before that place changes."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        pass  # broken or closed: whoever printed has been told, or nobody wants to know


def _take(fd: int, cleanup: contextlib.ExitStack) -> trio.lowlevel.FdStream | SharedStream:
    """A stream over a private copy of a descriptor, which child processes don't inherit (PEP 446)."""
    # Restored here and not by `FdStream`: one description may be input and output, and the first of the two streams
    # to close would make it block under the other.
    cleanup.callback(os.set_blocking, fd, os.get_blocking(fd))
    stream: trio.lowlevel.FdStream | SharedStream
    if is_pollable(fd):
        os.set_blocking(fd, False)
        stream = trio.lowlevel.FdStream(os.dup(fd))
    else:
        stream = SharedStream(os.dup(fd))
    cleanup.callback(stream.close)
    return stream

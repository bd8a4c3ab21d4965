"""Holds back the lines that a server prints about the probe for its era, and drops them if all is well.

The probe is a ``server/discover`` request. A server of the legacy era, which does not support it, may print a hundred
lines about it, as if something had failed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Final

import trio

from trio_mcp._log import logger
from trio_mcp.errors import RequestTimeout

__all__ = ["PROBING", "HeldOutput", "Probing"]

PROBE = b"server/discover"

MAX_HELD = 64 * 1024
"""How many bytes are held back at most (an arbitrary choice: nine times what the official Python SDK 1.30 prints
about the probe)."""


class HeldOutput:
    """Holds back a server's output, from the first lines about the probe until the server's era is known.

    Args:
        catch_up: Reads what the server has already printed, and passes it to `add`.

    Attributes:
        lines: The lines that are held back; once ``over`` is set, the lines to show.
        over: Set once these lines, and all later ones, may be shown.
        begun: Whether any lines have been held back yet.
    """

    def __init__(self, catch_up: Callable[[], None]) -> None:
        self.lines: list[bytes] = []
        self.over = trio.Event()
        self.begun = False
        self._catch_up = catch_up
        self._room = MAX_HELD
        # The range of the lines about the probe: it begins with the lines that were read together with the probe's
        # name, and ends when the response arrives.
        self._begin: int | None = None
        self._end: int | None = None

    def wants(self, lines: list[bytes]) -> bool:
        """Return whether to hold back these lines, which were read together."""
        # Nothing is held before the first lines about the probe: what a server prints as it starts is shown at once.
        return not self.over.is_set() and (self.begun or any(PROBE in line for line in lines))

    def add(self, lines: list[bytes]) -> None:
        """Hold back these lines, which were read together."""
        if self._begin is None and self._end is None and any(PROBE in line for line in lines):
            self._begin = len(self.lines)
        self.lines += lines
        self._room -= sum(len(line) + 1 for line in lines)
        if self._room < 0:
            self.release()

    def answered(self) -> None:
        """Record that the server has responded to the probe, so that later lines are not about the probe."""
        if not self.over.is_set() and self._end is None:
            # A server prints before it responds, but into another pipe, which may not have been read yet.
            self._catch_up()
            self._end = len(self.lines)

    def release(self, *, dropping: bool = False) -> None:
        """Allow the held lines to be shown; with ``dropping``, drop those about the probe."""
        if self.over.is_set():
            return
        if dropping and self._begin is not None:
            about = slice(self._begin, self._end)
            text = b"\n".join(self.lines[about]).decode("utf-8", "replace")
            logger.debug("a server of the legacy era printed this about server/discover:\n%s", text)
            del self.lines[about]
        self.over.set()


class Probing:
    """A client's attempt to find out the era of its server, and the output that is held back meanwhile."""

    def __init__(self) -> None:
        self._held: list[HeldOutput] = []
        self._over = False

    def hold(self, held: HeldOutput) -> bool:
        """Register held output, to be shown or dropped later; return False if the era is already known."""
        if not self._over:
            self._held.append(held)
        return not self._over

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Return a context manager for the block that sends the probe and awaits its response."""
        try:
            yield
        except RequestTimeout:
            # The server may still be starting, and its lines may say why it takes so long.
            self.end()
            raise
        finally:
            for held in self._held:
                held.answered()

    def end(self, *, legacy: bool = False) -> None:
        """Allow all lines to be shown, except those about the probe if the server turns out to be a legacy one.

        A second call does nothing.
        """
        self._over = True
        while self._held:
            self._held.pop().release(dropping=legacy)


# This is a context variable, because links are opened by functions of the application, which get no arguments.
PROBING: Final[ContextVar[Probing | None]] = ContextVar("PROBING", default=None)
"""The attempt of this task's client to find out the era of its server; None once the era is known."""

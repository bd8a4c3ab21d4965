"""One place in the set of child processes: who fills it, and when another one is started."""

from __future__ import annotations

from typing import Protocol

import trio

from trio_mcp import _attrs as attrs
from trio_mcp.server.processes.children import Child, first_of

__all__ = ["House", "Slot"]

YOUNG = 10.0
"""A child that ends before it has lived for so many seconds is young. An arbitrary choice."""

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""How many seconds pass before the next child is started after the first, second, … young one in a row has ended.

Arbitrary choices: the machine stays usable, and a cause that has gone is noticed within half a minute.
"""


class House(Protocol):
    """The supervisor, as a slot needs it."""

    async def launch(self, number: int) -> Child:
        """Start a child process, and look after it until it has ended."""

    def note_failure(self, status: int) -> None:
        """Count a child that has ended or could not be started."""

    def say(self, text: str) -> None:
        """Print a line to standard error."""


@attrs.define
class _Renewal:
    """A request to replace the child of a slot.

    Attributes:
        done: Set when the child has been replaced, or could not be.
        replaced: Whether it has been replaced.
    """

    done: trio.Event = attrs.Factory(trio.Event)
    replaced: bool = False


@attrs.define(eq=False)
class Slot:
    """A place for a child process, with a number, in which there is always one.

    Args:
        number: The number, from 1 on.
        house: The supervisor.
    """

    number: int
    _house: House
    _young: int = 0  # how many children in a row have ended young
    _asked: trio.Event = attrs.Factory(trio.Event)
    _renewal: _Renewal | None = None

    async def run(self) -> None:
        """Keep a child running, until cancelled."""
        while True:
            child = await self._started()
            self._settle(True)  # a child that has just been started need not be replaced
            while not child.ended.is_set():
                await first_of(child.ended, self._asked)
                if not child.ended.is_set():
                    child = await self._successor(child)
            await self._pause(str(child), child.what_happened, child.lived, child.process.returncode or 0)

    async def renew(self) -> bool:
        """Replace the child by a new one, which is ready before the old one is told to end.

        Returns:
            Whether that worked. If not, the old child continues.
        """
        renewal = self._renewal = _Renewal()
        self._asked.set()
        await renewal.done.wait()
        return renewal.replaced

    def _settle(self, replaced: bool) -> None:
        self._asked = trio.Event()
        if self._renewal is not None:
            self._renewal.replaced = replaced
            self._renewal.done.set()
            self._renewal = None

    async def _started(self) -> Child:
        while True:
            try:
                return await self._house.launch(self.number)
            except OSError as exc:
                await self._pause(f"process {self.number}", f"could not be started: {exc.strerror or exc}", 0, 1)

    async def _successor(self, old: Child) -> Child:
        """Return the child that has taken the place of an old one, or the old one if that did not work."""
        new = await self._started()
        await first_of(new.ready, new.ended)  # the supervisor kills one that is never ready
        if not new.ready.is_set():
            self._house.say(f"{new} {new.what_happened}; {old} stays")
            self._settle(False)
            return old
        self._house.say(f"{new} takes the place of {old}")
        old.end()
        await old.ended.wait()
        if old.killed is not None:
            self._house.say(f"{old} {old.what_happened}")
        self._young = 0
        self._settle(True)
        return new

    async def _pause(self, who: str, what: str, lived: float, status: int) -> None:
        """Say how a child has ended, and wait until the next one may be started."""
        self._young = self._young + 1 if lived < YOUNG else 0
        pause = PAUSES[min(self._young, len(PAUSES)) - 1] if self._young else 0
        when = f"another one is started in {pause:g} s" if pause else "another one is started"
        self._house.say(f"{who} {what}; {when}")
        self._house.note_failure(status)
        await trio.sleep(pause)

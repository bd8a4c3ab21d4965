"""A tape that writes to a file, and keeps nothing."""

from __future__ import annotations

from typing import Any

from trio_mcp.testing.transcript.events import Event, Kind, Sender
from trio_mcp.testing.transcript.files import TranscriptWriter
from trio_mcp.testing.transcript.tape import Tape

__all__ = ["FileTape"]


class FileTape(Tape):
    """A tape whose events are written as they happen.

    Args:
        writer: Where they are written.

    Attributes:
        count: How many there were.
    """

    def __init__(self, writer: TranscriptWriter) -> None:
        super().__init__()
        self.count = 0
        self._writer = writer

    def note(self, kind: Kind, sender: Sender, **settings: Any) -> Event:
        """Write an event, and wake those that wait for one."""
        event = super().note(kind, sender, **settings)
        self.events.clear()
        self._writer.write(event)
        self.count += 1
        return event
